"""Whose address a request came from, behind proxies or not.

A header says anything that a client likes, so it is read from its right end, where the proxy next to us wrote
what it saw, and only as far as each address on the way is a proxy that the operator named. Without such names
(the default) the peer of the connection is the client, and no header is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from litestar.types import Scope

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

MAX_HOPS: Final = 16
"""Proxies in a row that are believed; a longer chain ends at the last of them."""

MAX_NETWORKS: Final = 64


class ForwardedHeader(StrEnum):
    """The one header that the proxies write. A proxy passes on whatever other ones a client made up, so
    reading both, or whichever is there, would let the client choose."""

    X_FORWARDED_FOR = "x-forwarded-for"
    FORWARDED = "forwarded"  # RFC 7239


class TrustedProxies:
    """The networks whose word about the address before them is taken; frozen once made."""

    __slots__ = ("_networks", "header")

    def __init__(self, networks: str = "", header: str = ForwardedHeader.X_FORWARDED_FOR) -> None:
        """`networks`: addresses or networks ("10.0.0.0/8, ::1"), separated by commas. Raises ValueError,
        also for a network with bits set beyond its length, which is a slip of the hand."""
        named = [part.strip() for part in networks.split(",") if part.strip()]
        if len(named) > MAX_NETWORKS:
            raise ValueError(f"at most {MAX_NETWORKS} networks can be trusted")
        self._networks: tuple[Network, ...] = tuple(ip_network(part) for part in named)
        self.header = ForwardedHeader(header)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: object) -> bool:
        return any(address in network for network in self._networks)  # a network of the other kind says no


def client_address(scope: Scope, trusted: TrustedProxies) -> Address | None:
    """The nearest address that is no trusted proxy; the farthest proxy known, where there is no other or what
    it says can't be read.

    None when the peer has none: it came over a unix socket. An IPv4 address in IPv6 clothes
    (`::ffff:192.0.2.1`) is an IPv4 address. What the header says is the word of whom the operator named, no
    proof: never a credential by itself.
    """
    peer = scope["client"]
    nearest = parse_address(peer[0]) if peer else None
    if nearest is None or not trusted or nearest not in trusted:
        return nearest
    for said in _said(scope, trusted.header):
        address = None if said is None else parse_address(said)
        if address is None:
            break
        nearest = address
        if nearest not in trusted:
            break
    return nearest


@lru_cache(maxsize=4096)
def parse_address(text: str) -> Address | None:
    """An address, with a port (`192.0.2.1:443`, `[2001:db8::1]:443`) or without; None for anything else."""
    host = text.strip()
    if host.startswith("["):
        host, closed, port = host[1:].partition("]")
        if not closed or not _PORT.fullmatch(port):
            return None
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
        if not _PORT.fullmatch(":" + port):
            return None
    try:
        address = ip_address(host.partition("%")[0])  # a zone (fe80::1%eth0) means nothing elsewhere
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _said(scope: Scope, header: ForwardedHeader) -> Iterator[str | None]:
    """What proxies wrote, the nearest first; None for one that did not say."""
    name = header.encode()
    lines = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
    found: Iterable[str | None]
    if header is ForwardedHeader.FORWARDED:
        found = reversed(_forwarded_for(", ".join(lines)))
    else:
        found = reversed(",".join(lines).rsplit(",", MAX_HOPS)) if lines else ()
    for hops, said in enumerate(found):
        if hops == MAX_HOPS:
            return
        yield said


_PORT = re.compile(r"(?::[0-9]{1,5})?")
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105  RFC 9110's word for it
_PAIR = re.compile(rf"\s*({_TOKEN})=({_TOKEN}|\"(?:[^\"\\]|\\.)*\")\s*([;,]|$)")


def _forwarded_for(text: str) -> list[str | None]:
    """The `for` of each element of a `Forwarded` header (RFC 7239, section 4), in order; nothing at all of a
    header that breaks the grammar, since where its elements end is then a guess."""
    found: list[str | None] = []
    told: str | None = None
    at = 0
    while at < len(text):
        pair = _PAIR.match(text, at)
        if pair is None:
            return []
        name, value, end = pair.groups()
        if name.lower() == "for":
            told = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
        at = pair.end()
        if end != ";":
            found.append(told)
            told = None
    return found
