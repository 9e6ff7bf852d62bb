"""Acceptance prompts, asked of a version at a replica: ordinary requests in class batch with the purpose
`proof`, greedy, which no limit holds and nobody is billed for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
import structlog

from adapters import headers
from adapters.patterns import Budget, UnsafePattern, compile_pattern
from gateway.errors import BadRequest
from gateway.ids import uuid7
from gateway.inference.dispatch import read_all
from gateway.principal import TenantId
from gateway.replicas.driver import Driver, UpstreamFailed
from gateway.rollouts.plan import Acceptance, Prompt

log = structlog.get_logger(__name__)

ENDPOINT: Final = "/v1/chat/completions"
MAX_ANSWER_TOKENS: Final = 256
SPACE_TOKENS: Final = 8
AT_A_TIME: Final = 4
"""Prompts of one version."""
ANSWER_S: Final = 60.0
MAX_ANSWER_BYTES: Final = 1024 * 1024
MAX_SHOWN: Final = 200
"""Characters of an answer in a report."""
MAX_REPLICAS: Final = 3
"""Asked one after the other, until one gives a verdict."""
MAX_WORK: Final = 1_000_000
"""Nodes visited by all expressions of one rollout."""


@dataclass(frozen=True, slots=True)
class Examinee:
    """The version whose answers are judged."""

    tenant: TenantId
    artefact: str
    label: str  # name@number
    salt: str


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """`failed`: the first prompt that was not passed, and how it was answered."""

    passed: bool
    num_passed: int
    num_prompts: int
    minimum_share: float
    failed: dict[str, str] | None = None


class Examiner(Protocol):
    async def __call__(self, who: Examinee, acceptance: Acceptance) -> Examined | None:
        """None: no replica could say, which is nothing against the version."""
        ...


class ReplicaExaminer:
    """Asks the replicas that `drivers` gives."""

    def __init__(self, drivers: Callable[[], Sequence[Driver]]) -> None:
        self._drivers = drivers

    async def __call__(self, who: Examinee, acceptance: Acceptance) -> Examined | None:
        drivers = list(self._drivers())
        random.shuffle(drivers)
        for driver in drivers[:MAX_REPLICAS]:
            try:
                return await _examined(driver, who, acceptance)
            except (UpstreamFailed, TimeoutError) as error:
                log.info("acceptance_unanswered", version=who.label, reason=repr(error))
        return None


def check_prompts(acceptance: Acceptance) -> None:
    """Raises `BadRequest`, naming the prompt."""
    budget = Budget(MAX_WORK)
    for number, prompt in enumerate(acceptance.prompts):
        place = f"acceptance.prompts[{number}]"
        if (prompt.must_match is None) == (prompt.answer is None):
            raise BadRequest(f"'{place}' needs one of 'must_match' and 'answer'.", param=place)
        if prompt.must_match is not None:
            try:
                _search(prompt.must_match, budget)
            except UnsafePattern as error:
                raise BadRequest(f"'{place}.must_match': {error}.", param=place) from None


async def _examined(driver: Driver, who: Examinee, acceptance: Acceptance) -> Examined:
    """In the order of the prompts, some at a time, and no further than it can still be passed."""
    prompts, given = acceptance.prompts, list[str]()
    examined = judged(acceptance, given)
    while len(given) < len(prompts):
        some = prompts[len(given) : len(given) + AT_A_TIME]
        given += await asyncio.gather(*(_ask(driver, who, prompt) for prompt in some))
        examined = await asyncio.to_thread(judged, acceptance, given)
        if examined.num_passed + len(prompts) - len(given) < acceptance.minimum_share * len(prompts):
            break
    return examined


def judged(acceptance: Acceptance, given: Sequence[str]) -> Examined:
    """`given`: the answers, in the order of the prompts; those that are missing are not passed."""
    budget = Budget(MAX_WORK)
    passed = [fits(*each, budget) for each in zip(acceptance.prompts, given, strict=False)]
    first = next((number for number, fine in enumerate(passed) if not fine), None)
    failed = None
    if first is not None:
        prompt = acceptance.prompts[first]
        wanted = prompt.must_match if prompt.answer is None else prompt.answer
        failed = {"wanted": (wanted or "")[:MAX_SHOWN], "answered": given[first][:MAX_SHOWN]}
    return Examined(
        passed=sum(passed) >= acceptance.minimum_share * len(acceptance.prompts),
        num_passed=sum(passed),
        num_prompts=len(acceptance.prompts),
        minimum_share=acceptance.minimum_share,
        failed=failed,
    )


def fits(prompt: Prompt, text: str, budget: Budget) -> bool:
    if prompt.must_match is None:
        return prompt.answer is not None and text.strip() == prompt.answer.strip()
    try:
        return _search(prompt.must_match, budget)(text)
    except UnsafePattern:  # what can't be told within its share of work did not pass
        return False


def _search(pattern: str, budget: Budget) -> Callable[[str], bool]:
    """Whether it occurs. Expressions are ASCII; other characters are matched by `.` alone."""
    whole = compile_pattern(rf"[\s\S]*(?:{pattern})[\s\S]*", budget)
    return lambda text: whole(text.encode("ascii", "replace").decode("ascii"))


class _Message(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message


class _Answer(msgspec.Struct, frozen=True):
    choices: list[_Choice]


_ANSWER = msgspec.json.Decoder(_Answer)


async def _ask(driver: Driver, who: Examinee, prompt: Prompt) -> str:
    """Raises `UpstreamFailed`, and `TimeoutError`."""
    given = prompt.input
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
    most = MAX_ANSWER_TOKENS
    if prompt.answer is not None:  # no token is shorter than a byte: what is longer is another answer
        most = min(most, len(prompt.answer.encode()) + SPACE_TOKENS)
    body = msgspec.json.encode(
        {"model": who.label, "messages": messages, "max_tokens": most, "temperature": 0}
    )
    async with asyncio.timeout(ANSWER_S):
        upstream = await driver.open(ENDPOINT, body, _headers(who), ANSWER_S)
        try:
            raw = await read_all(upstream, MAX_ANSWER_BYTES, ANSWER_S)
            status = upstream.status
        finally:
            await upstream.close()
    if status == 503 and b'"adapter_unavailable"' in raw:  # can't be loaded or computed: an answer, and none
        return ""
    if status != 200:
        raise UpstreamFailed(f"the replica answered {status}")
    try:
        return _ANSWER.decode(raw).choices[0].message.content or ""
    except (msgspec.MsgspecError, UnicodeDecodeError, IndexError) as error:
        raise UpstreamFailed("the replica's answer can't be read") from error


def _headers(who: Examinee) -> dict[str, str]:
    return {
        headers.REQUEST: str(uuid7()),
        headers.ATTEMPT: "1",
        headers.TENANT: str(who.tenant),
        headers.KEY: "proof",
        headers.SALT: who.salt,
        headers.SERVICE_CLASS: "batch",
        headers.DEADLINE_MS: str(round(ANSWER_S * 1000)),
        headers.MAX_TOKENS: str(MAX_ANSWER_TOKENS),
        headers.PURPOSE: "proof",
        headers.ARTEFACT: who.artefact,
        headers.OWNER: str(who.tenant),
        headers.VERSION: who.label,
    }
