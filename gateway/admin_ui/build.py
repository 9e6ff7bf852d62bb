"""The built admin UI, held in memory: a request only ever looks a name up, so no path leads out of it.

`make ui` writes it. The page names its assets as `./assets/…`, which this turns into paths from the root,
with the prefix that a proxy adds; so they hold under every address of the UI, and no `<base>` is needed.
"""

from __future__ import annotations

import gzip
import html
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[2] / "admin_ui" / "dist"
MAX_BYTES: Final = 32 * 1024 * 1024
"""Of all files together, for each worker holds them."""
PREFIX_MARK: Final = b"__MOTET_PREFIX__"
NONCE_MARK: Final = b"__MOTET_NONCE__"
NONCE_BYTES: Final = 18

TYPES: Final[Mapping[str, str]] = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".json": "application/json",
}
"""What an asset may be; a file of another kind is not served."""
_PACKED: Final = frozenset({".js", ".css", ".svg", ".json"})


@dataclass(frozen=True)  # no slots: it remembers its packed form
class Asset:
    content: bytes
    media_type: str
    may_be_packed: bool

    @cached_property
    def packed(self) -> bytes:
        """By gzip."""
        return gzip.compress(self.content, 9, mtime=0)


@dataclass(frozen=True, slots=True)
class UiBuild:
    """`page` None: nothing is built."""

    page: bytes | None
    assets: Mapping[str, Asset]

    @classmethod
    def read(cls, folder: Path, prefix: str) -> UiBuild:
        """Raises ValueError for a folder that holds too much to be a build."""
        index = folder / "index.html"
        if not index.is_file():
            return cls(None, {})
        files = [file for file in sorted((folder / "assets").iterdir()) if file.suffix in TYPES]
        if sum(file.stat().st_size for file in files) > MAX_BYTES:
            raise ValueError(f"{folder} holds more than {MAX_BYTES} bytes: it is no build of the admin UI")
        assets = {
            file.name: Asset(file.read_bytes(), TYPES[file.suffix], file.suffix in _PACKED) for file in files
        }
        path = html.escape(prefix).encode()
        page = index.read_bytes().replace(b'"./assets/', b'"' + path + b"/admin/assets/")
        return cls(page.replace(PREFIX_MARK, path), assets)

    def fill(self, nonce: str) -> bytes:
        """The page, for one answer."""
        assert self.page is not None
        return self.page.replace(NONCE_MARK, nonce.encode())


def new_nonce() -> str:
    return secrets.token_urlsafe(NONCE_BYTES)


def policy(nonce: str) -> str:
    """The Content-Security-Policy of the page: its own scripts only, and styles that it brings or that carry
    the answer's nonce."""
    return (
        "default-src 'none'; script-src 'self'; "
        f"style-src 'self' 'nonce-{nonce}'; "
        "img-src 'self' data:; font-src 'self'; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    )
