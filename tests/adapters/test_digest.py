from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from adapters.digest import artefact_id, content_digest, is_digest
from tests.adapters.uploads import TINY, Blob, Upload, factor_names, upload

A0, B0 = factor_names(0, "q_proj")


def digest_of(given: Upload, folder: Path, base_id: str = TINY.base_id) -> str:
    manifest = given.manifest(folder)
    return content_digest(manifest, folder / "adapter_model.safetensors", base_id)


def reorder_tensors(given: Upload) -> None:
    given.tensors = dict(reversed(given.tensors.items()))


def reorder_config(given: Upload) -> None:
    given.config = dict(reversed(given.config.items()))


def say_more(given: Upload) -> None:
    given.config.update(base_model_name_or_path="elsewhere", lora_dropout=0.3, peft_version="9")
    given.metadata = {"format": "pt", "note": "x"}


def say_it_otherwise(given: Upload) -> None:
    given.config["target_modules"] = r".*\.[qv]_proj"


def name_default(given: Upload) -> None:
    given.tensors = {name.replace(".weight", ".default.weight"): b for name, b in given.tensors.items()}


def pad_header(given: Upload) -> None:
    def cut(raw: bytes) -> bytes:
        length = int.from_bytes(raw[:8], "little")
        return (length + 3).to_bytes(8, "little") + raw[8 : 8 + length] + b"   " + raw[8 + length :]

    given.cut = cut


@pytest.mark.parametrize(
    "change", [reorder_tensors, reorder_config, say_more, say_it_otherwise, name_default, pad_header]
)
def test_what_changes_nothing(tmp_path: Path, change: Callable[[Upload], None]) -> None:
    given = upload()
    expected = digest_of(given, tmp_path)
    change(given)
    assert digest_of(given, tmp_path) == expected


def change_value(given: Upload) -> None:
    blob = given.tensors[A0]
    given.tensors[A0] = Blob(blob.dtype, blob.shape, blob.data[:-1] + bytes([blob.data[-1] ^ 1]))


def change_alpha(given: Upload) -> None:
    given.config["lora_alpha"] = 9


def use_rslora(given: Upload) -> None:
    given.config["use_rslora"] = True


def swap_layers(given: Upload) -> None:
    other, _ = factor_names(1, "q_proj")
    given.tensors[A0], given.tensors[other] = given.tensors[other], given.tensors[A0]


@pytest.mark.parametrize("change", [change_value, change_alpha, use_rslora, swap_layers])
def test_what_makes_another_adapter(tmp_path: Path, change: Callable[[Upload], None]) -> None:
    given = upload()
    before = digest_of(given, tmp_path)
    change(given)
    assert digest_of(given, tmp_path) != before


def test_another_base_is_another_adapter(tmp_path: Path) -> None:
    other = msgspec.structs.replace(TINY, name="other").base_id
    assert digest_of(upload(), tmp_path) != digest_of(upload(), tmp_path, other)


def test_owners_of_equal_content_share_no_id(tmp_path: Path) -> None:
    content = digest_of(upload(), tmp_path)
    ids = {artefact_id(owner, content) for owner in ("acme", "globex", "")}
    assert len(ids) == 3
    assert all(is_digest(identity) for identity in ids)


def test_base_id_moves_with_name_shapes_and_tokenizer_only() -> None:
    def with_(**changes: object) -> str:
        return msgspec.structs.replace(TINY, **changes).base_id

    same = {TINY.base_id, with_(max_model_len=64), with_(eos_ids=(3,))}
    other = {with_(name="x"), with_(num_layers=4), with_(head_dim=8), with_(tokenizer_digest="1" * 64)}
    assert len(same) == 1
    assert len(other | same) == 5
