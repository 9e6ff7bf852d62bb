"""How a gateway and a replica prove who they are: a token that changes while requests run, and TLS on both
sides."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from gateway.config import Settings
from gateway.replicas.driver import UpstreamFailed
from gateway.replicas.drivers.motet import MotetDriver, ReplicaSession
from gateway.replicas.tls import replica_tls
from tests.authority import Authority
from tests.gateway.replicas.engine import Engine

OLD, NEW = "old-token-0123456789", "new-token-0123456789"


async def ask(driver: MotetDriver) -> int:
    upstream = await driver.open("/v1/completions", b"{}", {}, 5.0)
    while await upstream.read_some(5.0):
        pass
    await upstream.close()
    return upstream.status


@pytest.mark.parametrize("gateway_first", [True, False])
async def test_no_request_fails_while_a_token_is_changed(gateway_first: bool) -> None:
    async with (
        Engine("b" * 64, None, tokens=(OLD,)).running() as engine,
        ReplicaSession(connect_timeout_s=30, max_connections=16) as session,
    ):
        driver = MotetDriver(session, engine.url, OLD)
        statuses: list[int] = []

        async def keep_asking() -> None:
            while not done.is_set():
                statuses.append(await ask(driver))
                await driver.view()

        done = asyncio.Event()
        tasks = [asyncio.create_task(keep_asking()) for _ in range(8)]

        def gateway() -> None:
            driver.set_tokens((NEW, OLD))

        def replica() -> None:
            engine.tokens = (NEW, OLD) if not gateway_first else (NEW,)

        for step in (gateway, replica) if gateway_first else (replica, gateway):
            await asyncio.sleep(0.05)
            step()
        await asyncio.sleep(0.05)
        engine.tokens = (NEW,)
        await asyncio.sleep(0.05)
        driver.set_tokens((NEW,))
        await asyncio.sleep(0.05)
        done.set()
        await asyncio.gather(*tasks)
        assert set(statuses) == {200}
        refused = engine.refused
        assert await ask(driver) == 200
        assert engine.refused == refused, "what was taken is tried first from then on"


async def test_a_replica_that_knows_none_of_the_tokens_refuses() -> None:
    async with (
        Engine("b" * 64, None, tokens=("another-token-0123",)).running() as engine,
        ReplicaSession(connect_timeout_s=30, max_connections=16) as session,
    ):
        driver = MotetDriver(session, engine.url, NEW, OLD)
        assert await ask(driver) == 401
        with pytest.raises(UpstreamFailed, match="401"):
            await driver.view()


async def test_both_sides_prove_who_they_are(settings: Settings, tmp_path: Path) -> None:
    ours, strangers = Authority.make(tmp_path, "ours"), Authority.make(tmp_path, "strangers")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*ours.issue("replica"))
    server.load_verify_locations(ours.path)
    server.verify_mode = ssl.CERT_REQUIRED
    cert, key = ours.issue("gateway")
    foreign_cert, foreign_key = strangers.issue("stranger")

    async def reaches(**files: Path) -> bool:
        tls = replica_tls(settings.model_copy(update=files))
        async with ReplicaSession(connect_timeout_s=2, max_connections=4, tls=tls) as session:
            driver = MotetDriver(session, engine.url, "engine-token-of-tests")
            try:
                return await driver.ready()
            except UpstreamFailed:
                return False

    async with Engine("b" * 64, None).running(server) as engine:
        assert await reaches(replica_ca=ours.path, replica_client_cert=cert, replica_client_key=key)
        assert not await reaches(), "an authority that nobody named is not trusted"
        assert not await reaches(replica_ca=strangers.path, replica_client_cert=cert, replica_client_key=key)
        assert not await reaches(replica_ca=ours.path), "a gateway without a certificate is turned away"
        assert not await reaches(
            replica_ca=ours.path, replica_client_cert=foreign_cert, replica_client_key=foreign_key
        )


def test_a_certificate_goes_with_its_key(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="go together"):
        replica_tls(settings.model_copy(update={"replica_client_cert": tmp_path / "cert.pem"}))
    assert replica_tls(settings) is None
