"""Zips that no honest tool writes, made from one that it does."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
from collections.abc import Callable, Mapping

from gateway.catalog.parts import CONFIG_PART, WEIGHTS_PART

Files = Mapping[str, bytes]
EOCD = b"PK\x05\x06"
CENTRAL = b"PK\x01\x02"


def zipped(files: Files, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def entry(name: str, data: bytes = b"{}") -> Callable[[Files], bytes]:
    """A good zip with one entry more."""
    return lambda files: zipped({**files, name: data})


def folder(*places: str) -> Callable[[Files], bytes]:
    """The files in these folders, in turn."""
    return lambda files: zipped(
        {
            f"{place}{name}": files[name]
            for place, name in zip(places, (CONFIG_PART, WEIGHTS_PART), strict=True)
        }
    )


def twice(files: Files) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(CONFIG_PART, files[CONFIG_PART])
        archive.writestr("adapter_config.jsom", b"{}")
        archive.writestr(WEIGHTS_PART, files[WEIGHTS_PART])
    return out.getvalue().replace(b"adapter_config.jsom", CONFIG_PART.encode())


def mode(kind: int) -> Callable[[Files], bytes]:
    def make(files: Files) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            link = zipfile.ZipInfo(CONFIG_PART)
            link.create_system = 3
            link.external_attr = (kind | 0o777) << 16
            archive.writestr(link, b"/etc/passwd")
            archive.writestr(WEIGHTS_PART, files[WEIGHTS_PART])
        return out.getvalue()

    return make


LINK, DEVICE = mode(stat.S_IFLNK), mode(stat.S_IFCHR)


def central(field: int, form: str, value: int, *, local: int | None = None) -> Callable[[Files], bytes]:
    """A good zip whose list says `value` of its first entry; its local header too, at `local`."""

    def make(files: Files) -> bytes:
        raw = bytearray(zipped(files))
        struct.pack_into(form, raw, raw.index(CENTRAL) + field, value)
        if local is not None:
            struct.pack_into(form, raw, local, value)
        return bytes(raw)

    return make


ENCRYPTED = central(8, "<H", 1, local=6)
WRONG_CHECKSUM = central(16, "<L", 7, local=14)
SHORT = central(24, "<L", 5, local=22)
BEYOND_THE_END = central(42, "<L", 0x7FFFFFF0)


def bomb(files: Files) -> bytes:
    """Fifty megabytes in fifty kilobytes, honestly."""
    return zipped({**files, CONFIG_PART: bytes(50 << 20)})


def lying_bomb(files: Files) -> bytes:
    """The same, which says that it is a hundred bytes."""
    raw = bytearray(bomb(files))
    struct.pack_into("<L", raw, raw.index(CENTRAL) + 24, 100)
    struct.pack_into("<L", raw, 22, 100)
    return bytes(raw)


def zip64_lie(files: Files) -> bytes:
    """An entry of a tebibyte, as only the fields of zip64 can say it."""
    raw = bytearray(zipped(files, zipfile.ZIP_STORED))
    at = raw.index(CENTRAL)
    name_length = struct.unpack_from("<H", raw, at + 28)[0]
    struct.pack_into("<L", raw, at + 24, 0xFFFFFFFF)
    struct.pack_into("<H", raw, at + 30, 12)
    extra = struct.pack("<HHQ", 1, 8, 1 << 40)
    raw[at + 46 + name_length : at + 46 + name_length] = extra
    end = raw.rindex(EOCD)
    struct.pack_into("<L", raw, end + 12, struct.unpack_from("<L", raw, end + 12)[0] + len(extra))
    return bytes(raw)


def long_list(files: Files) -> bytes:
    """Claims a list of entries of four gigabytes."""
    raw = bytearray(zipped(files))
    end = raw.rindex(EOCD)
    struct.pack_into("<L", raw, end + 12, 0xFFFFFFF0)
    return bytes(raw)


def shared_bytes(files: Files) -> bytes:
    """Both entries begin at the first one's place."""
    raw = bytearray(zipped(files))
    second = raw.index(CENTRAL, raw.index(CENTRAL) + 4)
    struct.pack_into("<L", raw, second + 42, 0)
    return bytes(raw)


def other_name_inside(files: Files) -> bytes:
    """The list and the local header call the entry differently."""
    return zipped(files).replace(CONFIG_PART.encode(), b"adapter_c0nfig.json", 1)


def many_entries(_: Files) -> bytes:
    return zipped({f"file-{number}": b"" for number in range(5_000)})


def cut(files: Files) -> bytes:
    return zipped(files)[:-30]


def nul_in_a_name(files: Files) -> bytes:
    """What ends a name early for who reads it as C does."""
    return entry("adapter_config.json#.txt")(files).replace(b"#.txt", b"\0.txt")
