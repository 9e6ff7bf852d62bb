"""The header of a safetensors file, checked to the byte before anything believes it. Reads no tensor."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from adapters.refused import WEIGHTS, AdapterRefused, RefusalCode
from adapters.strict_json import InvalidJson, decode_object

MAX_HEADER_BYTES: Final = 16 * 1024 * 1024
MAX_TENSORS: Final = 16_384
MAX_NAME_CHARS: Final = 256
ITEM_BYTES: Final = {"F32": 4, "F16": 2, "BF16": 2}
_LENGTH_BYTES: Final = 8
_PICKLES: Final = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


class Tensor(msgspec.Struct, frozen=True):
    """A tensor in the file. `offset` counts from the start of the file."""

    name: str
    dtype: str  # a key of ITEM_BYTES
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


def read_header(path: Path, max_file_bytes: int) -> dict[str, Tensor]:
    """The file's tensors by name, whose bytes are known to lie inside it and to tile it. Raises
    `AdapterRefused`."""
    file_bytes = path.stat().st_size
    if file_bytes > max_file_bytes:
        _refuse(
            RefusalCode.WEIGHTS_TOO_LARGE, f"the file has {file_bytes} bytes; the most is {max_file_bytes}"
        )
    with path.open("rb") as file:
        start = file.read(_LENGTH_BYTES)
        if start.startswith(_PICKLES):
            _refuse(
                RefusalCode.NOT_SAFETENSORS,
                "the file is a pickle (torch.save), not safetensors; pickles are never read",
            )
        if len(start) < _LENGTH_BYTES:
            _refuse(RefusalCode.NOT_SAFETENSORS, "the file is too short to be safetensors")
        header_bytes = int.from_bytes(start, "little")
        if header_bytes > file_bytes - _LENGTH_BYTES:
            _refuse(
                RefusalCode.HEADER_MALFORMED,
                f"the header says it has {header_bytes} bytes, more than the file",
            )
        if header_bytes > MAX_HEADER_BYTES:
            _refuse(
                RefusalCode.HEADER_MALFORMED,
                f"the header has {header_bytes} bytes; the most is {MAX_HEADER_BYTES}",
            )
        header = _parse(file.read(header_bytes))
    data_start = _LENGTH_BYTES + header_bytes
    tensors = {name: _tensor(name, entry, data_start) for name, entry in header.items()}
    _check_tiling(list(tensors.values()), data_start, file_bytes)
    return tensors


def _parse(raw: bytes) -> dict[str, Any]:
    if not raw.startswith(b"{"):
        _refuse(
            RefusalCode.NOT_SAFETENSORS, "the header does not start with '{': this is not a safetensors file"
        )
    try:
        header = decode_object(raw)
    except InvalidJson as error:
        _refuse(RefusalCode.HEADER_MALFORMED, f"the header is invalid: {error}")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        _refuse(RefusalCode.HEADER_MALFORMED, "'__metadata__' must map strings to strings")
    if not header:
        _refuse(RefusalCode.HEADER_MALFORMED, "the file holds no tensors")
    if len(header) > MAX_TENSORS:
        _refuse(
            RefusalCode.HEADER_MALFORMED, f"the file holds {len(header)} tensors; the most is {MAX_TENSORS}"
        )
    return header


def _tensor(name: str, entry: Any, data_start: int) -> Tensor:
    if not 0 < len(name) <= MAX_NAME_CHARS:
        _refuse(
            RefusalCode.HEADER_MALFORMED,
            f"a tensor's name has {len(name)} characters; the most is {MAX_NAME_CHARS}",
        )
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        _refuse(
            RefusalCode.HEADER_MALFORMED,
            f"{shown(name)} must have dtype, shape and data_offsets, nothing else",
        )
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        _refuse(
            RefusalCode.BAD_DTYPE,
            f"{shown(name)} has dtype {shown(dtype)}; an adapter holds {', '.join(ITEM_BYTES)}",
        )
    if not _naturals(shape) or len(shape) != 2 or 0 in shape:
        _refuse(
            RefusalCode.HEADER_MALFORMED, f"{shown(name)} has shape {shown(shape)}; a LoRA factor is a matrix"
        )
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        _refuse(RefusalCode.BAD_OFFSETS, f"{shown(name)} has data_offsets {shown(offsets)}")
    num_bytes = math.prod(shape) * ITEM_BYTES[dtype]
    if offsets[1] - offsets[0] != num_bytes:
        _refuse(
            RefusalCode.BAD_OFFSETS,
            f"{shown(name)} needs {num_bytes} bytes by its shape; its offsets span {offsets[1] - offsets[0]}",
        )
    return Tensor(name, dtype, tuple(shape), data_start + offsets[0], num_bytes)


def _check_tiling(tensors: list[Tensor], data_start: int, file_bytes: int) -> None:
    """Every byte after the header belongs to exactly one tensor: no overlap, no gap, nothing hidden at the
    end."""
    end = data_start
    for tensor in sorted(tensors, key=lambda tensor: tensor.offset):
        if tensor.offset != end:
            how = "overlaps the tensor before it" if tensor.offset < end else "leaves a gap before it"
            _refuse(RefusalCode.BAD_OFFSETS, f"{shown(tensor.name)} {how}")
        end += tensor.num_bytes
    if end != file_bytes:
        how = "ends before its last tensor does" if end > file_bytes else "goes on after its last tensor"
        _refuse(RefusalCode.BAD_OFFSETS, f"the file {how}: {file_bytes} bytes, of which tensors end at {end}")


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 2**48 for item in value)


def shown(value: Any) -> str:
    """A value from the upload, safe and short enough for a message."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 120 else text[:117] + "..."


def _refuse(code: RefusalCode, message: str) -> NoReturn:
    raise AdapterRefused(code, message, WEIGHTS)
