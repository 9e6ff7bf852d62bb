"""The scheduler's settings, from the operator's words to the core's limits."""

from __future__ import annotations

import pytest
from pydantic import SecretStr, ValidationError

from engine.config import CoreSettings, EngineSettings
from engine.core.limits import CoreConfig
from engine.core_process import _core_config


def core(monkeypatch: pytest.MonkeyPatch, **settings: str) -> CoreConfig:
    for name, value in settings.items():
        monkeypatch.setenv(f"MOTET_ENGINE_{name.upper()}", value)
    monkeypatch.setenv("MOTET_ENGINE_BASE_MODEL", "base")
    engine = EngineSettings(token=SecretStr("a" * 16))
    return _core_config(CoreSettings.of(engine, "ipc://x"), num_blocks=64, device_adapter_bytes=None)


def test_the_bound_is_on_and_the_rest_is_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    config = core(monkeypatch)
    assert config.itl_stretch == 1.7
    assert config.target_itl_ms is None
    assert config.adapters_per_step == config.num_slots


def test_they_reach_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    config = core(monkeypatch, max_adapters_per_step="3", itl_stretch="2.5", target_itl_ms="40")
    assert (config.adapters_per_step, config.itl_stretch, config.target_itl_ms) == (3, 2.5, 40.0)


def test_zero_lifts_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert core(monkeypatch, itl_stretch="0").itl_stretch is None


def test_no_more_adapters_than_slots_are_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    assert core(monkeypatch, max_adapters_per_step="99", slots="4").adapters_per_step == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [("itl_stretch", "1"), ("itl_stretch", "-1"), ("target_itl_ms", "-5"), ("max_adapters_per_step", "0")],
)
def test_what_would_starve_prompts_or_means_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    with pytest.raises(ValidationError):
        core(monkeypatch, **{name: value})
