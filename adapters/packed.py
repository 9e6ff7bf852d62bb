"""The served form of an adapter: one file, layer after layer, each part aligned and with its own checksum.

    0      magic "MOTETLRA" | version u32 | header bytes u32 | file bytes u64 | sha256 of the header
    64     header: JSON, a part per changed layer: offset, size, sha256, modules (rank, scale, dtypes, places)
    4 KiB… the parts; in a part A and B of each site, rank-exact, as stored in the upload, 64-byte aligned

A reader can take one layer by a ranged read. The same adapter always packs to the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import struct
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from adapters.base import SITES
from adapters.digest import is_digest
from adapters.manifest import Manifest, Module
from adapters.safetensors_header import ITEM_BYTES, Tensor

FORMAT_VERSION: Final = 1
MAGIC: Final = b"MOTETLRA"
PART_ALIGNMENT: Final = 4_096
TENSOR_ALIGNMENT: Final = 64
MAX_HEADER_BYTES: Final = 16 * 1024 * 1024
_PREAMBLE: Final = struct.Struct("<8sIIQ32s8x")
_CHUNK_BYTES: Final = 1024 * 1024


class PackedCorrupt(Exception):
    """The file is not what was packed: cut, altered, or of another format."""


class PackedTensor(msgspec.Struct, frozen=True, array_like=True):
    dtype: str
    rows: int
    columns: int
    offset: int  # from the start of its part

    @property
    def num_bytes(self) -> int:
        return self.rows * self.columns * ITEM_BYTES[self.dtype]


class PackedModule(msgspec.Struct, frozen=True):
    site: str
    rank: int
    scale: float
    a: PackedTensor  # [rank, in]
    b: PackedTensor  # [out, rank]


class PackedPart(msgspec.Struct, frozen=True):
    layer: int
    offset: int  # from the start of the file
    size: int
    sha256: str
    modules: tuple[PackedModule, ...]


class PackedHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    artefact: str
    base_id: str
    parts: tuple[PackedPart, ...]


class PackedInfo(msgspec.Struct, frozen=True):
    path: Path
    num_bytes: int
    header: PackedHeader


def pack(manifest: Manifest, weights: Path, target: Path, *, artefact: str, base_id: str) -> PackedInfo:
    """Writes the served form of a proved adapter, whole or not at all. Raises OSError."""
    assert is_digest(artefact)
    assert is_digest(base_id)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with weights.open("rb") as source, temporary.open("wb") as out:
            header = _write(_layout(manifest, artefact, base_id), manifest, source, out)
            num_bytes = out.seek(0, os.SEEK_END)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return PackedInfo(target, num_bytes, header)


def read_header(path: Path) -> PackedHeader:
    """The checked header; every part and tensor it names lies inside the file. Raises `PackedCorrupt`,
    OSError."""
    with path.open("rb") as file:
        return _read_header(file)


def verify(path: Path, artefact: str | None = None) -> PackedHeader:
    """Reads the whole file against its checksums. Raises `PackedCorrupt`, OSError."""
    with path.open("rb") as file:
        header = _read_header(file)
        if artefact is not None and header.artefact != artefact:
            raise PackedCorrupt(f"{path.name} holds artefact {header.artefact}, not {artefact}")
        for part in header.parts:
            file.seek(part.offset)
            check_part(part, _digest(file, part.size))
    return header


def check_part(part: PackedPart, sha256: str) -> None:
    if sha256 != part.sha256:
        raise PackedCorrupt(f"the checksum of layer {part.layer} is wrong")


def _layout(manifest: Manifest, artefact: str, base_id: str) -> PackedHeader:
    """The header with its final length and zeros for the checksums, from which all places follow."""
    by_layer: dict[int, list[Module]] = {}
    for module in manifest.modules:
        by_layer.setdefault(module.layer, []).append(module)
    parts = []
    for layer in sorted(by_layer):
        modules, size = _pack_modules(sorted(by_layer[layer], key=lambda module: SITES.index(module.site)))
        parts.append(PackedPart(layer, 0, size, "0" * 64, modules))
    return _place_parts(PackedHeader(artefact, base_id, tuple(parts)))


def _pack_modules(modules: list[Module]) -> tuple[tuple[PackedModule, ...], int]:
    packed, at = [], 0
    for module in modules:
        places = []
        for tensor in (module.lora_a, module.lora_b):
            at = _aligned(at, TENSOR_ALIGNMENT)
            places.append(PackedTensor(tensor.dtype, tensor.shape[0], tensor.shape[1], at))
            at += tensor.num_bytes
        packed.append(PackedModule(module.site, module.rank, module.scale, places[0], places[1]))
    return tuple(packed), at


def _place_parts(header: PackedHeader) -> PackedHeader:
    """Offsets after the header, whose own length depends on their digits: repeat until it fits."""
    room = PART_ALIGNMENT
    while True:
        at, parts = room, []
        for part in header.parts:
            parts.append(msgspec.structs.replace(part, offset=at))
            at = _aligned(at + part.size, PART_ALIGNMENT)
        placed = msgspec.structs.replace(header, parts=tuple(parts))
        needed = _aligned(_PREAMBLE.size + len(msgspec.json.encode(placed)), PART_ALIGNMENT)
        if needed <= room:
            return placed
        room = needed


def _write(header: PackedHeader, manifest: Manifest, source: BinaryIO, out: BinaryIO) -> PackedHeader:
    sources = {(module.layer, module.site): module for module in manifest.modules}
    parts = []
    for part in header.parts:
        hasher = hashlib.sha256()
        out.seek(part.offset)
        written = 0
        for packed in part.modules:
            module = sources[part.layer, packed.site]
            for place, tensor in ((packed.a, module.lora_a), (packed.b, module.lora_b)):
                padding = bytes(place.offset - written)
                out.write(padding)
                hasher.update(padding)
                _copy(source, tensor, out, hasher)
                written = place.offset + tensor.num_bytes
        parts.append(msgspec.structs.replace(part, sha256=hasher.hexdigest()))
    num_bytes = out.tell()
    final = msgspec.structs.replace(header, parts=tuple(parts))
    raw = msgspec.json.encode(final)
    out.seek(0)
    out.write(_PREAMBLE.pack(MAGIC, FORMAT_VERSION, len(raw), num_bytes, hashlib.sha256(raw).digest()) + raw)
    return final


def _copy(source: BinaryIO, tensor: Tensor, out: BinaryIO, hasher: hashlib._Hash) -> None:
    source.seek(tensor.offset)
    left = tensor.num_bytes
    while left:
        chunk = source.read(min(left, _CHUNK_BYTES))
        if not chunk:
            raise EOFError(f"{tensor.name} ends before its size: the upload changed while it was packed")
        out.write(chunk)
        hasher.update(chunk)
        left -= len(chunk)


def _read_header(file: BinaryIO) -> PackedHeader:
    start = file.read(_PREAMBLE.size)
    if len(start) < _PREAMBLE.size or not start.startswith(MAGIC):
        raise PackedCorrupt("this is not a packed adapter")
    _, version, header_bytes, num_bytes, digest = _PREAMBLE.unpack(start)
    if version != FORMAT_VERSION:
        raise PackedCorrupt(f"packed format {version} is not {FORMAT_VERSION}, the one this process reads")
    actual = os.fstat(file.fileno()).st_size
    if actual != num_bytes or header_bytes > min(MAX_HEADER_BYTES, num_bytes):
        raise PackedCorrupt(f"the file has {actual} bytes; when it was packed it had {num_bytes}")
    raw = file.read(header_bytes)
    if hashlib.sha256(raw).digest() != digest:
        raise PackedCorrupt("the checksum of the header is wrong")
    try:
        header = msgspec.json.decode(raw, type=PackedHeader)
    except msgspec.DecodeError as error:
        raise PackedCorrupt(f"the header can't be read: {error}") from None
    _check_places(header, num_bytes)
    return header


def _check_places(header: PackedHeader, num_bytes: int) -> None:
    for part in header.parts:
        if not (part.offset >= PART_ALIGNMENT and part.size >= 0 and part.offset + part.size <= num_bytes):
            raise PackedCorrupt(f"layer {part.layer} lies outside the file")
        for module in part.modules:
            for tensor in (module.a, module.b):
                known = tensor.dtype in ITEM_BYTES and min(tensor.rows, tensor.columns, tensor.offset) >= 0
                if not known or tensor.offset + tensor.num_bytes > part.size:
                    raise PackedCorrupt(f"{module.site} of layer {part.layer} lies outside its part")


def _digest(file: BinaryIO, size: int) -> str:
    hasher, left = hashlib.sha256(), size
    while left:
        chunk = file.read(min(left, _CHUNK_BYTES))
        if not chunk:
            raise PackedCorrupt("the file ends too early")
        hasher.update(chunk)
        left -= len(chunk)
    return hasher.hexdigest()


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment
