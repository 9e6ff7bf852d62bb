"""From where a key may be used."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.client_address import Address
from gateway.errors import BadRequest, Forbidden
from gateway.networks import NetworkSet
from gateway.principal import Principal

MAX_NETWORKS = 64  # of one key
MAX_CHARACTERS = 49  # of one: the longest IPv6 address and a prefix length


def parse_networks(texts: Iterable[str]) -> NetworkSet:
    """Raises `BadRequest` for what is no address and no network."""
    try:
        return NetworkSet(texts)
    except ValueError as error:
        raise BadRequest(
            f"'allowed_networks': {error}.", param="allowed_networks", code="invalid_value"
        ) from error


def require_address(principal: Principal, address: Address | None) -> None:
    """Raises `Forbidden` when the key has an allow-list and `address` is not on it; an unknown address
    (None: a unix socket) is on none."""
    networks = principal.allowed_networks
    if networks is None or (address is not None and address in networks):
        return
    seen = "an unknown address" if address is None else str(address)
    raise Forbidden(f"This API key may not be used from {seen}.", code="ip_not_authorized")
