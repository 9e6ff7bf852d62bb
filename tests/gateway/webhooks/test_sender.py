"""What a sender connects to, held against servers that lie: names that resolve inside, that change, that
redirect, that never end."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.webhooks.destinations import Address, Destination, DestinationRefused, DestinationRules
from gateway.webhooks.sender import MAX_LINE_BYTES, Sender, SystemResolver, Tried
from tests.gateway.webhooks.conftest import LOCAL, Receiver

PUBLIC = DestinationRules.of("", "443", http=False)


class Names(AbstractResolver):
    """A name server of the attacker's: gives one list of addresses after the other, the last for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.asked += 1
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [
            ResolveResult(
                hostname=host,
                host=each,
                port=port,
                family=socket.AF_INET6 if ":" in each else socket.AF_INET,
                proto=0,
                flags=0,
            )
            for each in found
        ]

    async def close(self) -> None:
        pass


async def send(sender: Sender, url: str) -> Tried:
    return await sender.send(url, {"content-type": "application/json"}, b"{}")


def port_of(receiver: Receiver) -> int:
    return int(receiver.url.split(":")[2].split("/")[0])


async def test_what_the_operator_lets_in_is_reached(receiver: Receiver) -> None:
    tried = await send(Sender(LOCAL), receiver.url)
    assert (tried.status, tried.delivered, tried.error) == (200, True, None)
    names = Names(["127.0.0.1"])
    named = await send(Sender(LOCAL, resolver=lambda: names), f"http://hook.example:{port_of(receiver)}/")
    assert (named.status, names.asked, len(receiver.heard)) == (200, 1, 2)


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["10.0.0.1"],
        ["169.254.169.254"],
        ["100.64.0.1"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["2002:7f00:1::"],
        ["fe80::1"],
        ["1.1.1.1", "127.0.0.1"],  # one of two is enough
    ],
)
async def test_a_name_that_leads_inside_is_never_connected_to(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    made: list[Any] = []
    monkeypatch.setattr("gateway.webhooks.sender.socket.socket", lambda *each: made.append(each))
    tried = await send(Sender(PUBLIC, resolver=lambda: Names(addresses)), "https://hook.example/")
    assert tried.error == "refused: its address is not on the public internet"
    assert made == []


async def test_an_address_in_the_url_is_looked_at_too(receiver: Receiver) -> None:
    """No resolver is asked for it: the socket's maker is what stands there."""
    inside = DestinationRules.of("127.0.0.2/32", "443", http=True)
    tried = await send(Sender(inside), receiver.url)
    assert tried.error == "refused: its address is not on the public internet"
    assert receiver.heard == []


@pytest.mark.parametrize(
    "host", ["2130706433", "127.1", "0x7f000001", "0177.0.0.1", "localhost", "localhost."]
)
async def test_other_ways_to_write_this_machine_lead_nowhere(receiver: Receiver, host: str) -> None:
    tried = await send(Sender(PUBLIC, total_s=5), f"https://{host}:443/")
    assert (tried.status, tried.delivered) == (None, False)
    assert tried.error is not None


async def test_a_name_that_changes_its_address_gains_nothing(receiver: Receiver) -> None:
    """DNS rebinding: the first look is harmless, the next leads elsewhere. Each connection is looked at."""
    allowed = DestinationRules.of("127.0.0.1/32", "443", http=True)
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    sender, url = Sender(allowed, resolver=lambda: names), f"http://hook.example:{port_of(receiver)}/"
    assert (await send(sender, url)).status == 200
    second = await send(sender, url)
    assert (second.status, second.error) == (None, "refused: its address is not on the public internet")
    assert (names.asked, len(receiver.heard)) == (2, 1)


class Forgetful(DestinationRules):
    """Lets the first looks pass: what the last one, at the connected socket, is for."""

    left = 0

    def require(self, to: Destination, address: Address) -> None:
        if type(self).left > 0:
            type(self).left -= 1
            return
        raise DestinationRefused("seen at the peer")


async def test_the_connected_peer_is_looked_at_before_a_byte_goes_out(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = Forgetful(LOCAL.networks, LOCAL.ports, LOCAL.http)
    monkeypatch.setattr(Forgetful, "left", 2)  # the URL's own, and the socket's
    assert (await send(Sender(rules), receiver.url)).error == "refused: seen at the peer"
    assert receiver.heard == []
    monkeypatch.setattr(Forgetful, "left", 3)
    assert (await send(Sender(rules), receiver.url)).status == 200


async def test_redirects_are_not_followed(receiver: Receiver) -> None:
    receiver.statuses, receiver.location = [307], receiver.url + "/elsewhere"
    tried = await send(Sender(LOCAL), receiver.url)
    assert (tried.status, tried.delivered, len(receiver.heard)) == (307, False, 1)


async def test_a_proxy_in_the_environment_is_not_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert (await send(Sender(LOCAL), receiver.url)).status == 200


@asynccontextmanager
async def speaking(*lines: bytes, over_and_over: bytes = b"") -> AsyncIterator[str]:
    """A server that says this, whatever it hears."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            for line in lines:
                writer.write(line)
            while over_and_over:
                writer.write(over_and_over)
                await writer.drain()
                await asyncio.sleep(0)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()
        await server.wait_closed()


async def test_a_body_without_end_is_not_read() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    async with speaking(head, over_and_over=b"1000\r\n" + b"x" * 0x1000 + b"\r\n") as url:
        tried = await send(Sender(LOCAL, total_s=5), url)
    assert (tried.status, tried.error) == (200, None)
    assert tried.took_ms < 4_000


@pytest.mark.parametrize(
    "said",
    [
        [b"HTTP/1.1 200 OK\r\nx: " + b"y" * (MAX_LINE_BYTES + 1) + b"\r\n\r\n"],
        [b"not http at all\r\n\r\n"],
        [],
    ],
)
async def test_what_is_no_answer_is_a_failure_with_a_reason(said: list[bytes]) -> None:
    async with speaking(*said) as url:
        tried = await send(Sender(LOCAL, total_s=5), url)
    assert (tried.status, tried.delivered) == (None, False)
    assert tried.error


async def test_who_is_silent_is_left_after_the_time_limit(receiver: Receiver) -> None:
    receiver.hold = asyncio.Event()
    tried = await send(Sender(LOCAL, total_s=0.1), receiver.url)
    assert (tried.status, tried.error) == (None, "no answer within 0 s")


async def test_nobody_there_and_no_such_name_tell_nothing_of_addresses() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    refused = await send(Sender(LOCAL), f"http://127.0.0.1:{port}/")
    assert refused.error == "no connection: Connection refused"

    class Nothing(Names):
        async def resolve(self, *args: Any, **kwargs: Any) -> list[ResolveResult]:
            raise OSError("no such name")

    unknown = await send(Sender(LOCAL, resolver=Nothing), "http://hook.example/")
    assert unknown.error == "its name can't be resolved"
    plain = await send(Sender(LOCAL), f"https://127.0.0.1:{port}/")
    assert plain.error is not None
    assert "127.0.0.1" not in plain.error


async def test_names_are_looked_up_by_the_system_in_threads_of_their_own(receiver: Receiver) -> None:
    tried = await send(Sender(LOCAL), f"http://localhost:{port_of(receiver)}/")
    assert tried.delivered or tried.error == "refused: its address is not on the public internet"  # ::1 there
    found = await SystemResolver().resolve("localhost", 443)
    assert {ip_address(each["host"]).is_loopback for each in found} == {True}
    assert {thread.name.rpartition("_")[0] for thread in threading.enumerate()} >= {"webhook-names"}
