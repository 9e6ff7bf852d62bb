"""Runs acceptance prompts at a replica: ordinary requests of the class batch, with the purpose `proof`. No
price and no limit holds for them; the ledger has their rows like all others', by the engine's journal."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import msgspec

from adapters import headers
from gateway.ids import uuid7
from gateway.inference.dispatch import MAX_ERROR_BYTES, read_all
from gateway.inference.upstream_error import Verdict, upstream_error, verdict_of
from gateway.principal import TenantId
from gateway.proofs.acceptance import MAX_ANSWER_TOKENS, Acceptance, AcceptanceResult, Given, judge
from gateway.replicas.driver import NoVerdict, Upstream, UpstreamFailed
from gateway.replicas.replica import Load, Replica

AT_A_TIME: Final = 4
"""Prompts of one version."""
ANSWER_S: Final = 120.0
BUSY_S: Final = 60.0
"""How long a full replica is asked again, every `BUSY_PAUSE_S`."""
BUSY_PAUSE_S: Final = 0.25
MAX_ANSWER_BYTES: Final = 1024 * 1024
WEIGHS_TOKENS: Final = 2 * MAX_ANSWER_TOKENS
"""What a prompt counts as, for the router."""
ENDPOINT: Final = "/v1/chat/completions"
KEY: Final = "proof"
CLASS: Final = "batch"


@dataclass(frozen=True, slots=True)
class Examinee:
    """Whose answers are judged."""

    tenant: TenantId
    artefact: str
    label: str  # name@number
    salt: str


class _Message(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message


class _Answer(msgspec.Struct, frozen=True):
    choices: list[_Choice]


_ANSWER = msgspec.json.Decoder(_Answer)


async def run_acceptance(replica: Replica, who: Examinee, acceptance: Acceptance) -> AcceptanceResult:
    """All prompts, judged. Raises `UpstreamFailed` when one got no answer, which says nothing of it."""
    places = asyncio.Semaphore(AT_A_TIME)

    async def ask(body: bytes) -> Given:
        async with places:
            return await _ask(replica, who, body)

    asked = [asyncio.create_task(ask(prompt.body(who.label))) for prompt in acceptance.prompts]
    try:
        given = await asyncio.gather(*asked)
    finally:
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return await asyncio.to_thread(judge, acceptance, given)


async def _ask(replica: Replica, who: Examinee, body: bytes) -> Given:
    load = Load(replica, WEIGHS_TOKENS)
    try:
        until = time.monotonic() + BUSY_S
        while True:
            answer = await _attempt(replica, who, uuid7(), body)
            if answer is not None:
                return answer
            if time.monotonic() > until:
                raise NoVerdict("replica_busy", "the replica has had no room for an acceptance prompt")
            await asyncio.sleep(BUSY_PAUSE_S)
    finally:
        load.dismiss()
        load.release()


async def _attempt(replica: Replica, who: Examinee, request: UUID, body: bytes) -> Given | None:
    """None: the replica is full."""
    upstream: Upstream = await replica.driver.open(ENDPOINT, body, _headers(who, request), ANSWER_S)
    try:
        if upstream.status != 200:
            return await _refused(upstream)
        raw = await read_all(upstream, MAX_ANSWER_BYTES, ANSWER_S)
    finally:
        await upstream.close()
    try:
        return Given(_ANSWER.decode(raw).choices[0].message.content or "")
    except (msgspec.MsgspecError, UnicodeDecodeError, IndexError) as error:
        raise UpstreamFailed("the replica's answer can't be read") from error


async def _refused(upstream: Upstream) -> Given | None:
    """What the prompt itself is refused for is an answer, and no good one. Raises `UpstreamFailed`."""
    error = upstream_error(upstream.status, await read_all(upstream, MAX_ERROR_BYTES, ANSWER_S))
    verdict = verdict_of(upstream.status, error)
    if verdict is Verdict.BUSY:
        return None
    if verdict is Verdict.ANSWER and upstream.status != 504:
        return Given(error.message, refused=True)
    raise UpstreamFailed(f"the replica answered {upstream.status}: {error.message}", blames=False)


def _headers(who: Examinee, request: UUID) -> dict[str, str]:
    return {
        headers.REQUEST: str(request),
        headers.ATTEMPT: "1",
        headers.TENANT: str(who.tenant),
        headers.KEY: KEY,
        headers.SALT: who.salt,
        headers.SERVICE_CLASS: CLASS,
        headers.DEADLINE_MS: str(round(ANSWER_S * 1000)),
        headers.MAX_TOKENS: str(MAX_ANSWER_TOKENS),
        headers.PURPOSE: "proof",
        headers.ARTEFACT: who.artefact,
        headers.OWNER: str(who.tenant),
        headers.VERSION: who.label,
    }
