"""Runs acceptance prompts at a replica: ordinary requests of the class batch, with the purpose `proof`. No
price and no limit holds for them; the ledger has their rows like all others', by the engine's journal.
Proofs of uploads and steps of rollouts both go this way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from adapters import headers
from gateway.ids import uuid7
from gateway.inference.dispatch import MAX_ERROR_BYTES, read_all
from gateway.inference.ending import NOT_FINITE
from gateway.inference.frames import read_trailer
from gateway.inference.upstream_error import Verdict, upstream_error, verdict_of
from gateway.principal import TenantId
from gateway.proofs.acceptance import (
    MAX_ANSWER_TOKENS,
    Acceptance,
    AcceptanceResult,
    Given,
    Judge,
    Prompt,
)
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
ADAPTER_FAILED: Final = "adapter_failed"
"""The engine's outcome of a request whose adapter it could not load."""
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
    digests: Collection[str] | None = None  # of weights that it was proved on; None = any

    def runs_on(self, base_digest: str | None) -> bool:
        return self.digests is None or base_digest in self.digests


class NotLoaded(UpstreamFailed):
    """The replica could not load the adapter: the adapter's doing, or the store's."""

    def __init__(self, message: str) -> None:
        super().__init__(message, blames=False)


class _Message(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message


class _Answer(msgspec.Struct, frozen=True):
    choices: list[_Choice]


_ANSWER = msgspec.json.Decoder(_Answer)


async def run_acceptance(replica: Replica, who: Examinee, acceptance: Acceptance) -> AcceptanceResult:
    """Asks prompts, judged, until all are answered or too many were not passed. Raises `UpstreamFailed` when
    one got no answer, which says nothing of it; `NotLoaded` may."""
    judge = Judge(acceptance)
    while prompts := judge.left[:AT_A_TIME]:
        given = await _all([_ask(replica, who, prompt) for prompt in prompts])
        await asyncio.to_thread(judge.hear, given)
    return judge.result


async def _all(asking: Sequence[Coroutine[Any, Any, Given]]) -> list[Given]:
    """The first that fails ends the others."""
    asked = [asyncio.create_task(each) for each in asking]
    try:
        return await asyncio.gather(*asked)
    finally:
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def _ask(replica: Replica, who: Examinee, prompt: Prompt) -> Given:
    load = Load(replica, WEIGHS_TOKENS)
    try:
        until = time.monotonic() + BUSY_S
        while True:
            answer = await _attempt(replica, who, prompt)
            if answer is not None:
                return answer
            if time.monotonic() > until:
                raise NoVerdict("replica_busy", "the replica has had no room for an acceptance prompt")
            await asyncio.sleep(BUSY_PAUSE_S)
    finally:
        load.dismiss()
        load.release()


async def _attempt(replica: Replica, who: Examinee, prompt: Prompt) -> Given | None:
    """None: the replica is full."""
    told = _headers(who, prompt)
    try:
        async with asyncio.timeout(ANSWER_S):
            upstream = await replica.driver.open(ENDPOINT, prompt.body(who.label), told, ANSWER_S)
            try:
                if upstream.status != 200:
                    return await _refused(upstream)
                raw = await read_all(upstream, MAX_ANSWER_BYTES, ANSWER_S)
            finally:
                await upstream.close()
    except TimeoutError:
        raise UpstreamFailed("the replica did not answer in time") from None
    try:
        return Given(_ANSWER.decode(raw).choices[0].message.content or "")
    except (msgspec.MsgspecError, UnicodeDecodeError, IndexError) as error:
        raise UpstreamFailed("the replica's answer can't be read") from error


async def _refused(upstream: Upstream) -> Given | None:
    """What the prompt itself is refused for is an answer, and no good one; so is what computes to no number.
    Raises `UpstreamFailed`."""
    error = upstream_error(upstream.status, await read_all(upstream, MAX_ERROR_BYTES, ANSWER_S))
    trailer = read_trailer(upstream.headers.get(headers.TRAILER_HEADER, ""))
    outcome = None if trailer is None else trailer.outcome
    if outcome == NOT_FINITE:
        return Given(error.message, refused=True)
    if outcome == ADAPTER_FAILED:
        raise NotLoaded(error.message)
    verdict = verdict_of(upstream.status, error)
    if verdict is Verdict.BUSY:
        return None
    if verdict is Verdict.ANSWER and upstream.status != 504:
        return Given(error.message, refused=True)
    blames = upstream.status == 500  # it broke within the prompt, which may be the adapter's doing
    raise UpstreamFailed(f"the replica answered {upstream.status}: {error.message}", blames=blames)


def _headers(who: Examinee, prompt: Prompt) -> dict[str, str]:
    return {
        headers.REQUEST: str(uuid7()),
        headers.ATTEMPT: "1",
        headers.TENANT: str(who.tenant),
        headers.KEY: KEY,
        headers.SALT: who.salt,
        headers.SERVICE_CLASS: CLASS,
        headers.DEADLINE_MS: str(round(ANSWER_S * 1000)),
        headers.MAX_TOKENS: str(prompt.max_tokens),
        headers.PURPOSE: "proof",
        headers.ARTEFACT: who.artefact,
        headers.OWNER: str(who.tenant),
        headers.VERSION: who.label,
    }
