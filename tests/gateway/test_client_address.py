"""A client can write any header it likes; none of it may change what address we think it has."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar.types import Scope

from gateway.client_address import MAX_HOPS, MAX_NETWORKS, TrustedProxies, client_address

PROXIES = TrustedProxies("10.0.0.0/8, 192.168.1.1, fd00::/8")
RFC_7239 = TrustedProxies("10.0.0.0/8, fd00::/8", "forwarded")
NOBODY = TrustedProxies("")


def scope(peer: str | None, *lines: str, name: str = "x-forwarded-for") -> Scope:
    headers = [(b"host", b"x"), *((name.encode(), line.encode("latin-1")) for line in lines)]
    made: dict[str, Any] = {"client": (peer, 1234) if peer else None, "headers": headers}
    return cast(Scope, made)


@pytest.mark.parametrize(
    ("peer", "lines", "found"),
    [
        ("203.0.113.9", [], "203.0.113.9"),
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),  # the peer is nobody we trust
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["127.0.0.1, 198.51.100.1"], "198.51.100.1"),  # what stands left of it is made up
        ("10.0.0.1", ["127.0.0.1", "198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1, 10.9.9.9, 192.168.1.1"], "198.51.100.1"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),  # all of them are ours
        ("10.0.0.1", ["198.51.100.1, unknown"], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1,"], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1, 10.0.0.2, 1.2.3"], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1:4711"], "198.51.100.1"),
        ("10.0.0.1", ["[2001:db8::1]:4711"], "2001:db8::1"),
        ("10.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("10.0.0.1", ["[2001:db8::1"], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1:http"], "10.0.0.1"),
        ("fd00::1", ["::ffff:198.51.100.1"], "198.51.100.1"),
        ("::ffff:10.0.0.1", ["198.51.100.1"], "198.51.100.1"),  # a listener on both kinds
        ("192.168.1.2", ["198.51.100.1"], "192.168.1.2"),  # one host is trusted, not its network
    ],
)
def test_x_forwarded_for_is_read_from_the_right_through_trusted_proxies(
    peer: str, lines: list[str], found: str
) -> None:
    assert client_address(scope(peer, *lines), PROXIES) == ip_address(found)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("for=198.51.100.1", "198.51.100.1"),
        ('for="[2001:db8::1]:4711"; proto=https; by=10.0.0.1', "2001:db8::1"),
        ("For=127.0.0.1, FOR=198.51.100.1;host=x", "198.51.100.1"),
        ("for=198.51.100.1, for=10.0.0.7", "198.51.100.1"),
        ('for=198.51.100.1;host="a, for=127.0.0.1"', "198.51.100.1"),  # a comma that ends nothing
        (r'for="198.51.100\.1"', "198.51.100.1"),
        ("for=_hidden", "10.0.0.1"),
        ("for=unknown", "10.0.0.1"),
        ("proto=https", "10.0.0.1"),
        ('for=198.51.100.1, for="127.0.0.1', "10.0.0.1"),
        ("nonsense", "10.0.0.1"),
    ],
)
def test_forwarded_is_read_the_same_way(line: str, found: str) -> None:
    assert client_address(scope("10.0.0.1", line, name="forwarded"), RFC_7239) == ip_address(found)


def test_only_the_header_that_the_proxies_write_is_read() -> None:
    """The other one came through them as the client wrote it."""
    assert client_address(scope("10.0.0.1", "for=1.1.1.1", name="forwarded"), PROXIES) == ip_address(
        "10.0.0.1"
    )
    assert client_address(scope("10.0.0.1", "1.1.1.1"), RFC_7239) == ip_address("10.0.0.1")


def test_a_unix_socket_has_no_address_and_vouches_for_none() -> None:
    assert client_address(scope(None, "198.51.100.1"), PROXIES) is None


def test_a_chain_is_followed_only_so_far() -> None:
    line = ", ".join(["198.51.100.1", *(f"10.0.0.{n}" for n in range(2, MAX_HOPS + 2))])
    assert client_address(scope("10.0.0.1", line), PROXIES) == ip_address("10.0.0.2")
    long = ", ".join(["10.7.7.7"] * 5_000)
    assert client_address(scope("10.0.0.1", long), PROXIES) == ip_address("10.7.7.7")


@pytest.mark.parametrize(
    ("networks", "header"),
    [
        ("10.0.0.1/8", "x-forwarded-for"),
        ("proxy.internal", "x-forwarded-for"),
        ("10.0.0.0/33", "x-forwarded-for"),
        ("*", "x-forwarded-for"),
        ("10.0.0.0/8", "x-real-ip"),
        (",".join(["10.0.0.1"] * (MAX_NETWORKS + 1)), "x-forwarded-for"),
    ],
)
def test_what_names_no_network_is_refused(networks: str, header: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        TrustedProxies(networks, header)


ADDRESSES = st.ip_addresses(v=4).filter(lambda found: found not in PROXIES)
ANYTHING = st.lists(st.text(st.characters(codec="latin-1", exclude_characters="\r\n")), max_size=4)


@given(peer=ADDRESSES, lines=ANYTHING)
def test_no_header_moves_an_untrusted_peer(peer: IPv4Address, lines: list[str]) -> None:
    assert client_address(scope(str(peer), *lines), PROXIES) == peer
    assert client_address(scope("10.0.0.1", *lines), NOBODY) == ip_address("10.0.0.1")


@given(client=ADDRESSES, lines=ANYTHING, hops=st.lists(st.sampled_from(["10.0.0.2", "fd00::9"]), max_size=4))
def test_whatever_a_client_writes_its_own_address_is_found(
    client: IPv4Address, lines: list[str], hops: list[str]
) -> None:
    """As proxies write it: each appends, in one line or another, whom it saw."""
    appended = ", ".join([str(client), *hops])
    for written in ([*lines, appended], [", ".join([*lines, appended])]):
        assert client_address(scope("10.0.0.1", *written), PROXIES) == client


@given(client=ADDRESSES, lines=ANYTHING)
def test_a_broken_forwarded_header_names_nobody_but_who_is_known(
    client: IPv4Address, lines: list[str]
) -> None:
    """The client's part may break the grammar, never lead to an address of its choice to the right of it."""
    found = client_address(scope("10.0.0.1", *lines, f"for={client}", name="forwarded"), RFC_7239)
    assert found in (client, ip_address("10.0.0.1"))
    assert isinstance(found, IPv4Address | IPv6Address)
