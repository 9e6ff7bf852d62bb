"""From where a key may be used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import ip_network

from gateway.client_address import Address, Network
from gateway.errors import BadRequest, Forbidden
from gateway.principal import Principal

MAX_NETWORKS = 64  # of one key
MAX_CHARACTERS = 49  # of one: the longest IPv6 address and a prefix length


def parse_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Addresses ("192.0.2.1") and networks ("2001:db8::/32"). Raises `BadRequest`, also for a network with
    bits set beyond its length, which is a slip of the hand."""
    try:
        return tuple(sorted({ip_network(text) for text in texts}, key=str))
    except ValueError as error:
        raise BadRequest(
            f"'allowed_networks': {error}.", param="allowed_networks", code="invalid_value"
        ) from error


def within(network: Network, networks: Iterable[Network]) -> bool:
    """Whether one of `networks` holds all of `network`."""
    return any(
        network.version == other.version and network.subnet_of(other)  # type: ignore[arg-type]  # same version
        for other in networks
    )


def require_address(principal: Principal, address: Address | None) -> None:
    """Raises `Forbidden` when the key has an allow-list and `address` is not on it; an unknown address
    (None: a unix socket) is on none."""
    networks = principal.allowed_networks
    if networks is None or (address is not None and any(address in network for network in networks)):
        return
    seen = "an unknown address" if address is None else str(address)
    raise Forbidden(f"This API key may not be used from {seen}.", code="ip_not_authorized")
