"""Which addresses and URLs webhooks may go to."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.webhooks.destinations import DestinationRefused, DestinationRules, is_public

PUBLIC = DestinationRules()
INSIDE = DestinationRules.of("10.1.0.0/16, fd00:1::/32", "443,8443", http=True)

REFUSED = [
    "0.0.0.0",
    "10.0.0.1",
    "100.64.0.1",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.7",
    "224.0.0.1",
    "224.0.1.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::ffff:0:8.8.8.8",
    "64:ff9b::7f00:1",
    "64:ff9b::808:808",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%2",
    "2606:4700::1%2",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
]
ALLOWED = [
    "1.1.1.1",
    "8.8.8.8",
    "100.63.255.255",
    "172.32.0.1",
    "193.0.0.1",
    "2606:4700::1111",
    "2a00:1450::1",
]


@pytest.mark.parametrize("address", REFUSED)
def test_what_is_inside_or_special_is_refused(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", ALLOWED)
def test_what_anybody_reaches_is_not(address: str) -> None:
    assert is_public(ip_address(address))


@given(st.ip_addresses())
def test_nothing_that_python_calls_special_is_public(address: IPv4Address | IPv6Address) -> None:
    """Python's own reading of the registries is another one: it may allow more, never less."""
    if is_public(address):
        assert address.is_global
        assert not address.is_multicast
        assert not address.is_private


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "//example.com/",
        "example.com",
        "https://",
        "https:///path",
        "https://user:secret@example.com/",
        "https://user@example.com/",
        "https://example.com/#part",
        "https://example.com:22/",
        "https://example.com:80/",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://example.com:x/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[fe80::1%25eth0]/",
        "https://169.254.169.254/latest/meta-data/",
        "https://exa mple.com/",
        "https://example.com/\r\nx: y",
        "https://exämple.com/",
        "https://[::1/",
        "https://example.com/" + "x" * 2_048,
    ],
)
def test_urls_that_can_be_no_endpoint(url: str) -> None:
    with pytest.raises(DestinationRefused):
        PUBLIC.destination(url)


@pytest.mark.parametrize("url", ["https://example.com", "https://example.com/a?b=c", "https://1.1.1.1/hook"])
def test_urls_that_can(url: str) -> None:
    assert (PUBLIC.destination(url).url, PUBLIC.destination(url).port) == (url, 443)


def test_what_the_operator_lets_in_may_be_plain_and_on_any_port() -> None:
    inside = INSIDE.destination("http://10.1.2.3:9000/hook")
    INSIDE.require(inside, ip_address("10.1.2.3"))
    INSIDE.require(inside, ip_address("fd00:1::5"))
    for address in (
        "10.2.0.1",
        "127.0.0.1",
        "1.1.1.1",
    ):  # public, but not so plainly asked
        with pytest.raises(DestinationRefused):
            INSIDE.require(inside, ip_address(address))
    INSIDE.require(INSIDE.destination("https://example.com:8443/"), ip_address("1.1.1.1"))
    with pytest.raises(DestinationRefused, match="443, 8443"):
        INSIDE.require(INSIDE.destination("https://example.com:9443/"), ip_address("1.1.1.1"))


@pytest.mark.parametrize(
    ("networks", "ports"), [("10.0.0.0/33", "443"), ("10.0.0.1/8", "443"), ("", "https")]
)
def test_settings_that_make_no_sense_stop_the_process(networks: str, ports: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        DestinationRules.of(networks, ports, http=False)
