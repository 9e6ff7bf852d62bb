"""Would a chat succeed? A real one-token completion of the base, by the same way as a tenant's."""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

import msgspec
from litestar.types import HTTPReceiveMessage, Message

from adapters.base import BaseSpec
from adapters.wire import decode_completion
from gateway.catalog.resolved import Resolved
from gateway.errors import ApiError, Unavailable
from gateway.ids import uuid7
from gateway.inference.call import Call, Endpoint, Trip
from gateway.inference.client import Client, ClientPatience
from gateway.inference.service import Walk
from gateway.principal import Limits, Principal, TenantId

PLATFORM = TenantId(UUID(int=0))
"""Stands for the platform itself where a tenant is named: in the queue, in KV keys and in the ledger."""

PROBE_TIMEOUT_S = 30.0


class Probe:
    """Queue, router, relay, journal: all but the limits, which nobody can be asked to pay for this."""

    def __init__(self, walk: Walk, base: BaseSpec) -> None:
        self._walk = walk
        self._base = base

    async def __call__(self) -> None:
        """Raises `ApiError` when it does not succeed."""
        answer = _Answer()
        client = Client(_nobody_leaves, answer.send, ClientPatience(write_timeout_s=PROBE_TIMEOUT_S))
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await self._walk.carry(Trip(self._call()), client, None)
        except TimeoutError:
            raise Unavailable("A completion did not end in time.", code="probe_timeout") from None
        if answer.status != 200:
            raise ApiError(f"A completion answered {answer.status}.")

    def _call(self) -> Call:
        body = msgspec.json.encode(
            {"model": self._base.name, "prompt": [0], "max_tokens": 1, "temperature": 0}
        )
        return Call(
            request_id=uuid7(),
            client_request_id=None,
            endpoint=Endpoint.COMPLETIONS,
            principal=_PLATFORM,
            body=body,
            request=decode_completion(body),
            resolved=Resolved(self._base.name, self._base.base_id, None),
            prompt_tokens=1,
            max_tokens=1,
            arrived=time.monotonic(),
            purpose="probe",
        )


_PLATFORM = Principal(
    tenant=PLATFORM,
    tenant_name="platform",
    key_id="probe",
    scopes=frozenset(),
    tenant_limits=Limits(),
    key_limits=Limits(),
    salt="platform",
    epoch=0,
)


class _Answer:
    """Takes what a client would have seen."""

    status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]


async def _nobody_leaves() -> HTTPReceiveMessage:
    await asyncio.Event().wait()
    raise AssertionError("unreachable: nobody sets that event")
