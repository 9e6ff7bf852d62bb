"""Ways to spoil an upload, each a function that changes one (`tests/adapters/uploads.py`)."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from typing import Any

from tests.adapters.uploads import Blob, Upload, factor_names

A0, B0 = factor_names(0, "q_proj")
A1, B1 = factor_names(1, "q_proj")


def config(**changes: Any) -> Callable[[Upload], None]:
    def change(bad: Upload) -> None:
        bad.config.update(changes)

    return change


def raw_config(raw: bytes) -> Callable[[Upload], None]:
    def change(bad: Upload) -> None:
        bad.raw_config = raw

    return change


def header(mend: Callable[[dict[str, Any]], object]) -> Callable[[Upload], None]:
    def change(bad: Upload) -> None:
        bad.mend = mend

    return change


def file(cut: Callable[[bytes], bytes]) -> Callable[[Upload], None]:
    def change(bad: Upload) -> None:
        bad.cut = cut

    return change


def rename(old: str, new: str) -> Callable[[Upload], None]:
    def change(bad: Upload) -> None:
        bad.tensors = {new if name == old else name: blob for name, blob in bad.tensors.items()}

    return change


def add(name: str, shape: tuple[int, ...] = (4, 16), dtype: str = "BF16") -> Callable[[Upload], None]:
    def change(bad: Upload) -> None:
        size = 1
        for side in shape:
            size *= side
        bad.tensors[name] = Blob(dtype, shape, bytes(size * (4 if dtype == "F32" else 2)))

    return change


def shape(name: str, new: tuple[int, ...]) -> Callable[[Upload], None]:
    def change(bad: Upload) -> None:
        bad.tensors[name] = Blob("BF16", new, bytes(2 * new[0] * new[1]))

    return change


def rank_of_q0(rank: int) -> Callable[[Upload], None]:
    def change(bad: Upload) -> None:
        shape(A0, (rank, 16))(bad)
        shape(B0, (16, rank))(bad)

    return change


def remove(name: str) -> Callable[[Upload], None]:
    def change(bad: Upload) -> None:
        del bad.tensors[name]

    return change


def with_header(raw: bytes) -> Callable[[bytes], bytes]:
    return lambda whole: len(raw).to_bytes(8, "little") + raw


def torch_zip(_: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"lora": 1}))
    return out.getvalue()


def shift(name: str, by: int) -> Callable[[dict[str, Any]], object]:
    def mend(entries: dict[str, Any]) -> None:
        entries[name]["data_offsets"] = [at + by for at in entries[name]["data_offsets"]]

    return mend


def entry(name: str, **changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda entries: entries[name].update(changes)


def doubled_header(whole: bytes) -> bytes:
    length = int.from_bytes(whole[:8], "little")
    raw = whole[8 : 8 + length]
    first = json.dumps(A0).encode()
    twice = raw[:-1] + b", " + first + raw.split(first, 1)[1].split(b"}", 1)[0] + b"}}"
    return len(twice).to_bytes(8, "little") + twice + whole[8 + length :]
