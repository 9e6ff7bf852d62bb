"""A zip of an adapter's files, unpacked as a stranger's: nothing in it is believed before it is seen.

`zipfile` reads the list of entries, through a file that refuses large reads; the entries themselves are
inflated here, for `zipfile` stops at the size that an entry claims, and would not tell that there was more.
What local headers say must be what the list says, and no two entries may share bytes.
"""

from __future__ import annotations

import io
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from gateway.catalog.parts import ACCEPTANCE_PART, CONFIG_PART, WEIGHTS_PART, UploadLimits, too_large
from gateway.errors import Unprocessable

FILES: Final = (CONFIG_PART, WEIGHTS_PART, ACCEPTANCE_PART)
MAX_ENTRIES: Final = 8
MAX_READ_BYTES: Final = 128 * 1024
"""At once from the zip: the most that its list of entries may have, and enough to look for its end."""
_CHUNK_BYTES: Final = 64 * 1024
_MAX_OUT_BYTES: Final = 1 << 20
_FOLDER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,127}")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_LOCAL_SIGNATURE: Final = b"PK\x03\x04"
_ENCRYPTED: Final = 0x1 | 0x40 | 0x2000
_SIZES_FOLLOW: Final = 0x8
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file of ours in the zip, as its list has it."""

    file: str
    info: zipfile.ZipInfo


def unpack(source: Path, directory: Path, limits: UploadLimits, reserve: Callable[[int], None]) -> None:
    """Writes the known files of the zip into `directory`; `reserve` is told their bytes in all before the
    first is written. Blocks. Raises `Unprocessable` or `BodyTooLarge`, what `reserve` raises, and OSError for
    the disk."""
    with _Bounded(source) as archive:
        entries = _listed(archive)
        caps = limits.of_files
        for entry in entries:
            if entry.info.file_size > caps[entry.file]:
                raise too_large(entry.file, caps[entry.file])
        reserve(sum(entry.info.file_size for entry in entries))
        free_from = 0
        for entry in sorted(entries, key=lambda each: each.info.header_offset):
            if entry.info.header_offset < free_from:
                _refuse("zip_malformed", f"'{entry.file}' shares bytes with another entry.", entry.file)
            free_from = _extract(archive, entry, directory / entry.file)


class _Bounded(io.FileIO):
    """Refuses to read much at once, whatever the zip claims to hold."""

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = os.fstat(self.fileno()).st_size - self.tell() if size is None or size < 0 else size
        if wanted > MAX_READ_BYTES:
            raise zipfile.BadZipFile("its list of entries is too long")
        return super().read(max(0, wanted)) or b""


def _listed(archive: _Bounded) -> Sequence[_Entry]:
    try:
        with zipfile.ZipFile(archive) as opened:
            found = opened.infolist()
    except (
        zipfile.BadZipFile,
        zipfile.LargeZipFile,
        NotImplementedError,
        ValueError,
        EOFError,
        struct.error,
    ) as error:
        _refuse("zip_malformed", f"The file is no zip that can be read: {error}.")
    if len(found) > MAX_ENTRIES:
        _refuse(
            "zip_unknown_entry", f"The zip has {len(found):,} entries; an adapter has three files at most."
        )
    entries: dict[str, _Entry] = {}
    folders: set[str] = set()
    for info in found:
        _check_kind(info)
        folder, file = _place(info)
        folders.add(folder)
        if file is None:
            continue
        if file in entries:
            _refuse("zip_duplicate_entry", f"The zip has '{file}' twice.", file)
        entries[file] = _Entry(file, info)
    if len(folders) > 1:
        _refuse(
            "zip_unknown_entry", "The files of the zip must lie side by side, at its top or in one folder."
        )
    return list(entries.values())


def _check_kind(info: zipfile.ZipInfo) -> None:
    shown = _shown(info)
    if info.flag_bits & _ENCRYPTED:
        _refuse("zip_encrypted", f"'{shown}' in the zip is encrypted.")
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind and not (stat.S_ISREG(kind) or (stat.S_ISDIR(kind) and info.is_dir())):
        _refuse("zip_not_a_file", f"'{shown}' in the zip is a link or a device.")
    if info.compress_type not in _METHODS:
        _refuse("zip_method", f"'{shown}' in the zip must be stored or deflated.")


def _place(info: zipfile.ZipInfo) -> tuple[str, str | None]:
    """The folder at the top ("" = none) and the file of ours in it; None = the folder itself."""
    match info.orig_filename.split("/"):
        case [folder, ""] if _FOLDER.fullmatch(folder) and info.file_size == 0:
            return folder, None
        case [file] if file in FILES:
            return "", file
        case [folder, file] if _FOLDER.fullmatch(folder) and file in FILES:
            return folder, file
        case _:
            names = ", ".join(FILES)
            message = f"The zip has '{_shown(info)}'; it may have {names}, in one folder or in none."
            raise Unprocessable(message, code="zip_unknown_entry")


def _extract(archive: _Bounded, entry: _Entry, target: Path) -> int:
    """Writes one file; gives where its bytes end in the zip."""
    start = _data_start(archive, entry)
    archive.seek(start)
    with target.open("xb", buffering=0) as out:
        _inflate(archive, entry, out)
    return start + entry.info.compress_size


def _data_start(archive: _Bounded, entry: _Entry) -> int:
    info = entry.info
    archive.seek(info.header_offset)
    raw = archive.read(_LOCAL.size)
    if len(raw) < _LOCAL.size:
        _lies(entry)
    signature, _, flags, method, _, _, crc, packed, size, name_length, extra_length = _LOCAL.unpack(raw)
    name = archive.read(name_length)
    told = flags & _SIZES_FOLLOW or 0xFFFFFFFF in (
        packed,
        size,
    )  # they follow the data, or are in zip64 fields
    same_sizes = (crc, packed, size) == (info.CRC, info.compress_size, info.file_size)
    if (
        signature != _LOCAL_SIGNATURE
        or method != info.compress_type
        or flags & _ENCRYPTED
        or name != info.orig_filename.encode("utf-8" if info.flag_bits & 0x800 else "cp437")
        or not (told or same_sizes)
    ):
        _lies(entry)
    return int(info.header_offset) + _LOCAL.size + int(name_length) + int(extra_length)


def _inflate(archive: _Bounded, entry: _Entry, out: BinaryIO) -> None:
    written, crc = 0, 0
    for data in _contents(archive, entry):
        written += len(data)
        if written > entry.info.file_size:
            _lies(entry)
        crc = zlib.crc32(data, crc)
        _write_all(out, data)
    if written != entry.info.file_size or crc != entry.info.CRC:
        _lies(entry)


def _contents(archive: _Bounded, entry: _Entry) -> Iterator[bytes]:
    """The file, at most `_MAX_OUT_BYTES` at a time."""
    stored = entry.info.compress_type == zipfile.ZIP_STORED
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    left = entry.info.compress_size
    while left:
        chunk = archive.read(min(left, _CHUNK_BYTES))
        if not chunk or (inflater.eof and not stored):
            _lies(entry)
        left -= len(chunk)
        if stored:
            yield chunk
            continue
        yield (data := _inflated(inflater, chunk, entry))
        while inflater.unconsumed_tail or len(data) == _MAX_OUT_BYTES:
            yield (data := _inflated(inflater, inflater.unconsumed_tail, entry))
    if not stored and (not inflater.eof or inflater.unused_data):
        _lies(entry)


def _inflated(inflater: zlib._Decompress, chunk: bytes, entry: _Entry) -> bytes:
    try:
        return inflater.decompress(chunk, _MAX_OUT_BYTES)
    except zlib.error as error:
        _refuse("zip_malformed", f"'{entry.file}' in the zip can't be inflated: {error}.", entry.file)


def _write_all(out: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[out.write(view) :]


def _shown(info: zipfile.ZipInfo) -> str:
    return info.orig_filename[:80].encode("ascii", "backslashreplace").decode()


def _lies(entry: _Entry) -> NoReturn:
    _refuse(
        "zip_size_mismatch",
        f"'{entry.file}' in the zip is not what its headers say: its size, checksum or place differs.",
        entry.file,
    )


def _refuse(code: str, message: str, param: str | None = None) -> NoReturn:
    raise Unprocessable(message, code=code, param=param)
