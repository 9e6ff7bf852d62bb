"""Sets of networks agree with `ipaddress`, which they are faster than."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.networks import NetworkSet

addresses = st.one_of(
    st.integers(0, 2**32 - 1).map(IPv4Address),
    st.integers(0, 2**128 - 1).map(IPv6Address),
    st.sampled_from([IPv4Address("10.0.0.1"), IPv6Address("2001:db8::1")]),
)


@st.composite
def networks(draw: st.DrawFn) -> str:
    address = draw(addresses)
    length = draw(st.integers(0, 32 if address.version == 4 else 128))
    return str(ip_network(f"{address}/{length}", strict=False))


@given(texts=st.lists(networks(), max_size=8), address=addresses)
def test_an_address_is_in_a_set_when_it_is_in_one_of_its_networks(
    texts: list[str], address: IPv4Address | IPv6Address
) -> None:
    assert (address in NetworkSet(texts)) == any(address in ip_network(text) for text in texts)


@given(outer=st.lists(networks(), max_size=4), inner=st.lists(networks(), max_size=4))
def test_a_set_holds_another_when_each_of_its_networks_lies_within_one(
    outer: list[str], inner: list[str]
) -> None:
    held = NetworkSet(outer)
    assert held.holds(held)
    if held.holds(NetworkSet(inner)):
        assert all(ip_network(text).network_address in held for text in inner)
        assert all(ip_network(text).broadcast_address in held for text in inner)


@pytest.mark.parametrize("text", ["192.0.2.1/24", "192.0.2", "example.com", "", "::1/129"])
def test_what_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"appear|host bits"):
        NetworkSet([text])
