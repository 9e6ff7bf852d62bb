"""Adapters from a real store, through the disk cache, into kernel layout."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from adapters.base import BaseSpec
from adapters.digest import artefact_id, content_digest
from adapters.disk_cache import DiskCache
from adapters.manifest import read_manifest
from adapters.packed import pack
from adapters.store import artefact_path, open_store
from engine.core.plan import AdapterUnavailable, NotNear
from engine.core.protocol import AdapterRef, Tier
from engine.kernels.lora import KernelAdapter, prepare
from engine.model.adapter_source import AdapterFiles
from tests.engine.model.goldens import DEMO, kernel_adapter

OWNER = "0192f3a0-0000-7000-8000-000000000001"


def stored(tmp_path: Path, base: BaseSpec, name: str = "triage") -> AdapterRef:
    weights = DEMO / name / "adapter_model.safetensors"
    manifest = read_manifest((DEMO / name / "adapter_config.json").read_bytes(), weights, base)
    artefact = artefact_id(OWNER, content_digest(manifest, weights, base.base_id))
    packed = tmp_path / "packed.motet"
    pack(manifest, weights, packed, artefact=artefact, base_id=base.base_id)
    open_store((tmp_path / "store").as_uri()).put_file(packed, artefact_path(OWNER, artefact))
    return AdapterRef(artefact, OWNER)


@pytest.fixture
def base(demo_model_dir: Path) -> BaseSpec:
    return BaseSpec.from_dir(demo_model_dir, "demo")


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    (tmp_path / "store").mkdir()
    return DiskCache(tmp_path / "cache", 1 << 26, open_store((tmp_path / "store").as_uri()))


def test_an_adapter_comes_from_the_store_then_from_disk(
    tmp_path: Path, base: BaseSpec, cache: DiskCache
) -> None:
    ref, source = stored(tmp_path, base), AdapterFiles(cache, base, prepare)
    assert not source.is_near(ref)
    with pytest.raises(NotNear):
        source.load(ref, fetch=False)
    first, second = source.load(ref, fetch=True), source.load(ref, fetch=False)
    assert source.is_near(ref)
    assert (first.found_in, second.found_in) == (Tier.STORE, Tier.DISK)
    wanted = kernel_adapter(DEMO / "triage", base)
    assert isinstance(first.handle, KernelAdapter)
    assert first.num_bytes == wanted.num_bytes
    assert first.handle.touched == wanted.touched
    held = [f.untyped_storage().nbytes() for each in first.handle.modules.values() for f in (each.a, each.b)]
    assert sum(held) == first.num_bytes, "nothing else of the file is kept"
    for where, factors in wanted.modules.items():
        found = first.handle.modules[where]
        assert torch.equal(found.a, factors.a)
        assert torch.equal(found.b, factors.b)
        assert found.scale == factors.scale
    source.forget(ref)
    assert source.load(ref, fetch=True).found_in is Tier.STORE


def test_what_can_not_be_had_is_said_for_a_person(tmp_path: Path, base: BaseSpec, cache: DiskCache) -> None:
    with pytest.raises(AdapterUnavailable, match="not in the store"):
        AdapterFiles(cache, base, prepare).load(AdapterRef("a" * 64, OWNER), fetch=True)
    ref = stored(tmp_path, base)
    other = BaseSpec.from_dir(tmp_path_model(tmp_path, base), "other")
    with pytest.raises(AdapterUnavailable, match="does not fit the base"):
        AdapterFiles(cache, other, prepare).load(ref, fetch=True)


def tmp_path_model(tmp_path: Path, base: BaseSpec) -> Path:
    """A folder that says it is another base: the tiny one of the family tests, with a tokenizer."""
    from tests.engine.model.test_families import make

    folder = tmp_path / "other"
    make("llama", folder)
    (folder / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
    return folder


@pytest.mark.parametrize("harm", ["deleted", "cut"])
def test_a_file_that_was_lost_or_harmed_on_disk_is_fetched_again(
    tmp_path: Path, base: BaseSpec, cache: DiskCache, harm: str
) -> None:
    """After it was checked, by somebody who cleans up or by the disk."""
    ref, source = stored(tmp_path, base), AdapterFiles(cache, base, prepare)
    source.load(ref, fetch=True)
    (file,) = (tmp_path / "cache").glob("*.motet")
    if harm == "deleted":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(NotNear):
        source.load(ref, fetch=False)
    assert not source.is_near(ref)
    assert source.load(ref, fetch=True).found_in is Tier.STORE
    assert source.load(ref, fetch=False).found_in is Tier.DISK
