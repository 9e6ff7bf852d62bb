"""Prompts that come with an upload, and whether an adapter's answers are what they ask for.

The file `acceptance.json` is a list of prompts, or `{"prompts": […], "minimum_share": 0.9}`. Each has an
`input` (a user's text, or the messages of a chat) and either `must_match`, a regular expression that has to
occur in the answer, or `answer`, which it has to equal but for space around it. Expressions are those of
`adapters/patterns.py`, matched in linear time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta

from adapters.patterns import Budget, UnsafePattern, compile_search
from adapters.refusal import RequestRefused
from adapters.wire import decode_chat
from gateway.catalog.parts import ACCEPTANCE_PART
from gateway.errors import Unprocessable

MAX_PROMPTS: Final = 32
MAX_ANSWER_TOKENS: Final = 256
MAX_SHOWN_CHARS: Final = 2_000
"""Of an answer in a report."""
MAX_WORK: Final = 1_000_000
"""Nodes visited by all expressions of one version, half a second at most."""

Text = Annotated[str, Meta(min_length=1, max_length=16_384)]


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    input: Text | Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=64)]
    must_match: Annotated[str, Meta(min_length=1)] | None = None
    answer: Text | None = None

    def body(self, model: str) -> bytes:
        """The request whose answer is judged: greedy, so that it is the same each time."""
        given = self.input
        messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
        asked = {"model": model, "messages": messages, "max_tokens": MAX_ANSWER_TOKENS, "temperature": 0}
        return msgspec.json.encode(asked)


class Acceptance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`minimum_share` of the prompts must be answered as asked."""

    prompts: Annotated[list[Prompt], Meta(min_length=1, max_length=MAX_PROMPTS)]
    minimum_share: Annotated[float, Meta(ge=0, le=1)] = 1.0


class Given(NamedTuple):
    """What a prompt was answered with; `refused`: an error that is the prompt's own."""

    text: str
    refused: bool = False


class Answered(msgspec.Struct, frozen=True):
    """One prompt's result. `text` is the beginning of the answer."""

    passed: bool
    text: str
    expected: str


class AcceptanceResult(msgspec.Struct, frozen=True):
    passed: bool
    share: float
    minimum_share: float
    answers: list[Answered]


_FILE = msgspec.json.Decoder(Acceptance)
_LIST = msgspec.json.Decoder(Annotated[list[Prompt], Meta(min_length=1, max_length=MAX_PROMPTS)])


def read_acceptance(raw: bytes) -> Acceptance:
    """Raises `Unprocessable`, naming the prompt."""
    try:
        listed = raw.lstrip()[:1] == b"["
        acceptance = Acceptance(_LIST.decode(raw)) if listed else _FILE.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _refused(str(error)) from None
    budget = Budget(MAX_WORK)
    for number, prompt in enumerate(acceptance.prompts):
        _check(prompt, f"prompts[{number}]", budget)
    return acceptance


def _check(prompt: Prompt, place: str, budget: Budget) -> None:
    if (prompt.must_match is None) == (prompt.answer is None):
        raise _refused(f"{place} needs one of 'must_match' and 'answer'")
    try:
        decode_chat(prompt.body("base"))
    except RequestRefused as error:
        raise _refused(f"{place}.input: {error.message}") from None
    if prompt.must_match is not None:
        try:
            compile_search(prompt.must_match, budget)
        except UnsafePattern as error:
            raise _refused(f"{place}.must_match: {error}") from None


def _refused(why: str) -> Unprocessable:
    return Unprocessable(
        f"'{ACCEPTANCE_PART}' is refused: {why[:500]}.", param=ACCEPTANCE_PART, code="invalid_acceptance"
    )


def judge(acceptance: Acceptance, given: Sequence[Given]) -> AcceptanceResult:
    """`given`: the answers, in the order of the prompts."""
    budget = Budget(MAX_WORK)
    answers = [_answered(*pair, budget) for pair in zip(acceptance.prompts, given, strict=True)]
    share = sum(each.passed for each in answers) / len(answers)
    passed = share >= acceptance.minimum_share
    return AcceptanceResult(passed, round(share, 4), acceptance.minimum_share, answers)


def _answered(prompt: Prompt, given: Given, budget: Budget) -> Answered:
    expected = prompt.answer if prompt.must_match is None else prompt.must_match
    assert expected is not None  # checked when it was read
    passed = not given.refused and _fits(prompt, given.text, budget)
    return Answered(passed, given.text[:MAX_SHOWN_CHARS], expected[:MAX_SHOWN_CHARS])


def _fits(prompt: Prompt, text: str, budget: Budget) -> bool:
    if prompt.must_match is None:
        return prompt.answer is not None and text.strip() == prompt.answer.strip()
    try:
        return compile_search(prompt.must_match, budget)(text)
    except UnsafePattern:  # what can't be told within its share of work did not pass
        return False
