"""Under which URL browsers reach this installation: its origin, and the path that a reverse proxy adds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)*")


def below(raw_path: bytes, name: str) -> str:
    """The `Location` of what a request to a collection, at `raw_path`, has made there. Relative, so that it
    holds behind a proxy that ends TLS or adds a prefix."""
    last = raw_path.split(b"?")[0].rpartition(b"/")[2].decode("ascii")
    return f"{last}/{name}" if last else name


@dataclass(frozen=True, slots=True)
class PublicUrl:
    """`prefix` is "" or begins with a slash and ends with none; the proxy takes it off before it passes a
    request on."""

    origin: str
    prefix: str

    @classmethod
    def parse(cls, text: str) -> PublicUrl:
        """Raises ValueError, which names the setting, for what no browser can reach."""
        parts = urlsplit(text)
        path = parts.path.rstrip("/")
        try:
            reachable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # a port that is none
            reachable = False
        if not reachable or parts.username or parts.query or parts.fragment or not _PATH.fullmatch(path):
            raise ValueError(
                f"MOTET_PUBLIC_URL is '{text}': it takes a scheme (http or https), a host, and perhaps a port"
                " and a path, as in https://models.example.com/motet"
            )
        return cls(f"{parts.scheme}://{parts.netloc}", path)

    @property
    def is_secure(self) -> bool:
        return self.origin.startswith("https://")

    @property
    def is_local(self) -> bool:
        """Of this machine only, which browsers trust without TLS."""
        host = urlsplit(self.origin).hostname or ""
        if host == "localhost" or host.endswith(".localhost"):
            return True
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return False

    def path(self, path: str) -> str:
        """The path that a browser asks for: `/admin/` → `/motet/admin/`."""
        return self.prefix + path

    def url(self, path: str) -> str:
        return self.origin + self.path(path)
