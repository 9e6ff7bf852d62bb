"""Where a webhook may go: never to an address inside, whatever a tenant writes or its name server says.

The rules are looked at again for each connection, on the address that it is made to, so that a name which
resolves to something else the next time (DNS rebinding) gains nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import SplitResult, urlsplit

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

MAX_URL_CHARACTERS: Final = 2_048
DEFAULT_PORTS: Final = {"https": 443, "http": 80}

# IANA's special-purpose registries (RFC 6890 and its updates), and multicast.
_REFUSED_V4: Final = tuple(
    IPv4Network(each)
    for each in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local, and where clouds keep their credentials
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
# All else is refused, as ::ffff:0:0/96 (IPv4 within), 64:ff9b::/96 (NAT64), fc00::/7 and fe80::/10.
_GLOBAL_V6: Final = IPv6Network("2000::/3")
_REFUSED_V6: Final = tuple(
    IPv6Network(each)
    for each in (
        "2001::/23",  # Teredo, ORCHID, benchmarks
        "2001:db8::/32",
        "2002::/16",  # 6to4: an IPv4 address within
        "2620:4f:8000::/48",
        "3fff::/20",
    )
)


class DestinationRefused(ValueError):
    """Said to the tenant, as it stands: it tells nothing of what is inside."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A URL that may be an endpoint's, as far as the URL itself can tell."""

    url: str
    scheme: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class DestinationRules:
    """`networks`: what the operator lets webhooks reach besides the public internet; there any port is open,
    and `http` too if `http` is set."""

    networks: tuple[Network, ...] = ()
    ports: frozenset[int] = frozenset({443})
    http: bool = False

    @classmethod
    def of(cls, networks: str, ports: str, http: bool) -> DestinationRules:
        """From settings, comma-separated. Raises ValueError."""
        return cls(
            tuple(ip_network(each) for each in _listed(networks)),
            frozenset(int(each) for each in _listed(ports)),
            http,
        )

    def destination(self, url: str) -> Destination:
        """Raises `DestinationRefused`. Names are not resolved here."""
        parts, port = _split(url)
        host = (parts.hostname or "").rstrip(".")
        if not host or not host.isascii() or any(each in host for each in "%\\"):
            raise DestinationRefused("it names no host")
        if parts.username is not None or parts.password is not None:
            raise DestinationRefused("it holds a user name or password: what signs a webhook is its secret")
        if parts.fragment:
            raise DestinationRefused("it has a fragment")
        if parts.scheme != "https" and not (self.http and parts.scheme == "http"):
            raise DestinationRefused("it must begin with https://")
        found = Destination(url, parts.scheme, host, DEFAULT_PORTS[parts.scheme] if port is None else port)
        literal = _literal(host)
        if literal is not None:
            self.require(found, literal)
        elif found.port not in self.ports and not self.networks:
            raise DestinationRefused(f"its port may be {self._named_ports} only")
        return found

    def require(self, to: Destination, address: Address) -> None:
        """Whether a connection to that address may be made; raises `DestinationRefused`."""
        if any(address in network for network in self.networks):
            return
        if not is_public(address):
            raise DestinationRefused("its address is not on the public internet")
        if to.scheme != "https":
            raise DestinationRefused("it must begin with https://")
        if to.port not in self.ports:
            raise DestinationRefused(f"its port may be {self._named_ports} only")

    @property
    def _named_ports(self) -> str:
        return ", ".join(map(str, sorted(self.ports)))


def is_public(address: Address) -> bool:
    """Whether anybody on the internet could be there."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _REFUSED_V4)
    return (
        address in _GLOBAL_V6
        and address.scope_id is None
        and not any(address in network for network in _REFUSED_V6)
    )


def address_of(text: str) -> Address:
    """Of a resolver or a socket. Raises `DestinationRefused`."""
    try:
        return ip_address(text)
    except ValueError as error:
        raise DestinationRefused("its address is of no known kind") from error


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _split(url: str) -> tuple[SplitResult, int | None]:
    if len(url) > MAX_URL_CHARACTERS or not url.isascii() or not url.isprintable() or " " in url:
        raise DestinationRefused(f"it must be ASCII of at most {MAX_URL_CHARACTERS} characters, none a space")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise DestinationRefused("it can't be read") from error
    if port == 0:
        raise DestinationRefused("its port is 0")
    return parts, port


def _listed(text: str) -> Sequence[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
