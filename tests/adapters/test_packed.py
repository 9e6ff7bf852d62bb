from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.base import SITES
from adapters.loader import WrongBase, load
from adapters.packed import PART_ALIGNMENT, TENSOR_ALIGNMENT, PackedCorrupt, pack, read_header, verify
from tests.adapters.uploads import TINY, Upload, upload

ARTEFACT = "a" * 64
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def packed(given: Upload, folder: Path, name: str = "adapter.motet") -> Path:
    manifest = given.manifest(folder)
    weights = folder / "adapter_model.safetensors"
    return pack(manifest, weights, folder / name, artefact=ARTEFACT, base_id=TINY.base_id).path


RANKS = st.dictionaries(
    st.tuples(st.integers(0, 2), st.sampled_from(SITES)), st.integers(1, 40), min_size=1, max_size=21
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(ranks=RANKS, dtype=st.sampled_from(["F32", "F16", "BF16"]), seed=st.integers(0, 99))
def test_what_was_uploaded_is_what_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, ranks: dict[tuple[int, str], int], dtype: str, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("packed")
    original = upload(ranks, dtype=dtype, seed=seed)
    manifest = original.manifest(folder)
    path = packed(original, folder)
    adapter = load(path, TINY)
    assert adapter.artefact == ARTEFACT
    assert set(adapter.modules) == set(ranks)
    assert adapter.max_rank == manifest.max_rank
    for module in manifest.modules:
        a, b, scale = adapter.modules[module.layer, module.site]
        assert scale == module.scale
        for tensor, source in ((a, module.lora_a), (b, module.lora_b)):
            assert (tensor.dtype, tuple(tensor.shape)) == (DTYPES[dtype], source.shape)
            assert (
                tensor.contiguous().view(torch.uint8).numpy().tobytes() == original.tensors[source.name].data
            )


def test_equal_adapters_pack_to_equal_bytes(tmp_path: Path) -> None:
    first = packed(upload(), tmp_path).read_bytes()
    other = upload()
    other.tensors = dict(reversed(other.tensors.items()))
    other.config["peft_version"] = "9"
    assert packed(other, tmp_path).read_bytes() == first


def test_parts_stand_in_layer_order_aligned_and_apart(tmp_path: Path) -> None:
    path = packed(upload({(layer, site): 3 for layer in range(3) for site in SITES}), tmp_path)
    header = verify(path, ARTEFACT)
    assert [part.layer for part in header.parts] == [0, 1, 2]
    end = PART_ALIGNMENT
    for part in header.parts:
        assert part.offset % PART_ALIGNMENT == 0
        assert part.offset >= end
        end = part.offset + part.size
        assert [module.site for module in part.modules] == list(SITES)
        assert all(t.offset % TENSOR_ALIGNMENT == 0 for module in part.modules for t in (module.a, module.b))
    assert end == path.stat().st_size


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = packed(upload({(0, "q_proj"): 1}), tmp_path)
    whole = path.read_bytes()
    header = read_header(path)
    inside = [*range(56), *range(64, 80), header.parts[0].offset, len(whole) - 1]
    for at in inside:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        with pytest.raises(PackedCorrupt):
            verify(path)


@pytest.mark.parametrize("keep", [0, 7, 63, 64, 500, 4096, -1])
def test_a_cut_file_is_noticed(tmp_path: Path, keep: int) -> None:
    path = packed(upload(), tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(PackedCorrupt):
        read_header(path)


def test_bytes_after_the_end_are_noticed(tmp_path: Path) -> None:
    path = packed(upload(), tmp_path)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(PackedCorrupt):
        read_header(path)


def test_another_artefact_under_its_name_is_noticed(tmp_path: Path) -> None:
    path = packed(upload(), tmp_path)
    with pytest.raises(PackedCorrupt, match="holds artefact"):
        verify(path, "b" * 64)


def test_loading_checks_what_landed_in_memory(tmp_path: Path) -> None:
    path = packed(upload(), tmp_path)
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 1
    path.write_bytes(whole)
    with pytest.raises(PackedCorrupt, match="checksum of layer 2"):
        load(path, TINY)


def test_loading_for_another_base(tmp_path: Path) -> None:
    path = packed(upload(), tmp_path)
    other = type(TINY)(**{**{f: getattr(TINY, f) for f in TINY.__struct_fields__}, "name": "other"})
    with pytest.raises(WrongBase):
        load(path, other)


def test_nothing_is_left_when_packing_fails(tmp_path: Path) -> None:
    given = upload()
    manifest = given.manifest(tmp_path)
    weights = tmp_path / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])  # cut between the proof and the packing
    with pytest.raises(EOFError):
        pack(manifest, weights, tmp_path / "x.motet", artefact=ARTEFACT, base_id=TINY.base_id)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["adapter_model.safetensors"]
