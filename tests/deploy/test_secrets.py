"""Each way of starting the platform gives its processes the same secrets, and `motet up` makes its own."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any, get_args
from uuid import uuid4

import msgspec.yaml
import pytest
from pydantic import SecretStr

from deploy.local.layout import Home
from deploy.local.processes import EnginePlan, Plan
from deploy.local.roles import DatabaseUrls
from deploy.local.secret_file import load_or_make_secrets
from deploy.local.up import FORMERLY, SECRETS
from gateway.answers.sealing import Label
from gateway.config import Settings
from gateway.principal import TenantId
from gateway.receipts.opening import receipt_keys
from gateway.replicas.opening import data_keys

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
OF_A_FEATURE = {"registration_token", "metrics_token", "oidc_providers"}
"""Each turns something on that these ways of starting leave off."""


def shared_secrets() -> set[str]:
    """Environment variables of what all gateways, workers and control must hold alike."""
    secret = {
        name
        for name, field in Settings.model_fields.items()
        if field.annotation is SecretStr or SecretStr in get_args(field.annotation)
    }
    lasting = {name for name in secret if not name.endswith("_previous")} - OF_A_FEATURE
    assert {f"{name}_previous" for name in lasting} <= secret, "each can be rotated"
    return {f"MOTET_{name.upper()}" for name in lasting}


def plan_of(home: Path, kept: dict[str, str]) -> Plan:
    engines = EnginePlan(Home(home), "bfloat16", 8, home / "model", "base", "file:///s", "t" * 32, (1,))
    urls = DatabaseUrls(owner="postgresql://o/d", app="postgresql://a/d", system="postgresql://s/d")
    keys = (kept["pepper"], kept["data_key"], kept["receipt_key"])
    return Plan(engines, 8080, 1, urls, "redis://r", *keys)


def test_motet_up_makes_them_once_and_for_its_owner_only(tmp_path: Path) -> None:
    path = Home(tmp_path).secrets
    kept = load_or_make_secrets(path, SECRETS, FORMERLY)
    assert len(set(kept.values())) == len(SECRETS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_or_make_secrets(path, SECRETS, FORMERLY) == kept
    plan = plan_of(tmp_path, kept)
    for child in (plan.gateway(), plan.control()):
        assert shared_secrets() <= set(child.env)
        assert (child.env["MOTET_DATA_KEY"], child.env["MOTET_RECEIPT_KEY"]) == (
            kept["data_key"],
            kept["receipt_key"],
        )


def test_a_home_of_before_there_were_keys_opens_what_the_pepper_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Home(tmp_path).secrets
    before = {name: name * 8 for name in SECRETS if name not in FORMERLY}
    path.write_text(json.dumps(before))
    kept = load_or_make_secrets(path, SECRETS, FORMERLY)
    assert {name: kept[name] for name in before} == before
    for name, value in plan_of(tmp_path, kept).gateway().env.items():
        monkeypatch.setenv(name, value)
    now = Settings()
    then = now.model_copy(update={"data_key": None, "receipt_key": None})
    tenant = TenantId(uuid4())
    label = Label("test", tenant, "name")
    assert data_keys(now).open(label, data_keys(then).seal(label, b"sealed")) == b"sealed"
    assert receipt_keys(now).of(tenant) == receipt_keys(then).of(tenant)


def test_compose_gives_them_to_gateway_and_control() -> None:
    file = (DEPLOY / "compose" / "compose.yaml").read_bytes()
    services: dict[str, Any] = msgspec.yaml.decode(file)["services"]
    example = (DEPLOY / "compose" / ".env.example").read_text()
    for name in shared_secrets():
        assert re.search(rf"^{name}=$", example, re.MULTILINE), f"{name} is not in .env.example"
        for service in ("gateway", "control"):
            environment = services[service]["environment"]
            assert environment[name] == f"${{{name}:?}}"
            assert environment[f"{name}_PREVIOUS"] is None  # compose then passes on what .env has, if it does


def test_the_chart_takes_them_from_its_secret() -> None:
    chart = DEPLOY / "helm" / "motet"
    template = (chart / "templates" / "_motet.tpl").read_text()
    named = dict(re.findall(r'"motet\.rotated" \(dict "root" \. "name" "(\w+)" "key" "([\w-]+)"\)', template))
    assert set(named) == shared_secrets()
    about = (chart / "values.yaml").read_text().partition("secretName:")[0]
    assert all(re.search(rf"\b{key}\b", about) for key in named.values())
    both = (chart / "templates" / "gateway.yaml").read_text().count('include "motet.gateway"')
    assert both == 2  # the gateway, and control beside it
