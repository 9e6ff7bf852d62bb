"""Sets of networks: what an allow-list is made of."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_network

from gateway.client_address import Address, Network


class NetworkSet:
    """Addresses ("192.0.2.1") and networks ("192.0.2.0/24", "2001:db8::/32"); never changed once made."""

    __slots__ = ("_networks", "_of_version")

    def __init__(self, texts: Iterable[str]) -> None:
        """Raises ValueError, also for a network with bits set beyond its length: a slip of the hand."""
        self._networks: tuple[Network, ...] = tuple(sorted({ip_network(text) for text in texts}, key=str))
        self._of_version = {
            version: [
                (int(network.network_address), int(network.netmask))
                for network in self._networks
                if network.version == version
            ]
            for version in (4, 6)
        }

    def __contains__(self, address: Address) -> bool:
        number = int(address)
        return any(number & mask == start for start, mask in self._of_version[address.version])

    def holds(self, other: NetworkSet) -> bool:
        """Whether each network of `other` lies within one of these."""
        return all(any(_within(one, network) for network in self._networks) for one in other._networks)

    @property
    def texts(self) -> list[str]:
        return [str(network) for network in self._networks]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NetworkSet) and self._networks == other._networks

    def __hash__(self) -> int:
        return hash(self._networks)

    def __repr__(self) -> str:
        return f"NetworkSet({self.texts})"


def _within(one: Network, other: Network) -> bool:
    return one.version == other.version and one.subnet_of(other)  # type: ignore[arg-type]  # of one version
