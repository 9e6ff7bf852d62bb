"""Acceptance prompts of an upload or a rollout, and whether an adapter's answers are what they ask for.

They are written `{"prompts": […], "minimum_share": 0.9}`; the file `acceptance.json` may be a bare list, too.
Each has an `input` (a user's text, or the messages of a chat) and either `must_match`, a regular expression
that has to occur in the answer, or `answer`, which it has to equal but for space around it. Expressions are
those of `adapters/patterns.py`, matched in linear time.
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
SPACE_TOKENS: Final = 8
"""Around an `answer`."""
MAX_WORK: Final = 1_000_000
"""Nodes visited by all expressions of one version, half a second at most."""

Text = Annotated[str, Meta(min_length=1, max_length=16_384)]


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    input: Text | Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=64)]
    must_match: Annotated[str, Meta(min_length=1)] | None = None
    answer: Text | None = None

    @property
    def max_tokens(self) -> int:
        """Of its answer. No token is shorter than a byte: what is longer than `answer` is another one."""
        if self.answer is None:
            return MAX_ANSWER_TOKENS
        return min(MAX_ANSWER_TOKENS, len(self.answer.encode()) + SPACE_TOKENS)

    def body(self, model: str) -> bytes:
        """The request whose answer is judged: greedy, so that it is the same each time."""
        given = self.input
        messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
        asked = {"model": model, "messages": messages, "max_tokens": self.max_tokens, "temperature": 0}
        return msgspec.json.encode(asked)


class Acceptance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`minimum_share` of the prompts must be answered as asked."""

    prompts: Annotated[list[Prompt], Meta(min_length=1, max_length=MAX_PROMPTS)]
    minimum_share: Annotated[float, Meta(ge=0, le=1)] = 1.0


class Given(NamedTuple):
    """What a prompt was answered with; `refused`: an error that is the prompt's or the adapter's own."""

    text: str
    refused: bool = False


class Answered(msgspec.Struct, frozen=True):
    """One prompt's result. `text` is the beginning of the answer."""

    passed: bool
    text: str
    expected: str


class AcceptanceResult(msgspec.Struct, frozen=True):
    """`share` is of all `num_prompts`; `answers` ends where they could no longer be passed."""

    passed: bool
    share: float
    minimum_share: float
    num_prompts: int
    answers: list[Answered]

    @property
    def num_passed(self) -> int:
        return sum(each.passed for each in self.answers)

    @property
    def told(self) -> str:
        """For people."""
        left = self.num_prompts - len(self.answers)
        rest = f" and {left} not asked" if left else ""
        answered = f"{self.num_passed} of {self.num_prompts} prompts were answered as asked{rest}"
        return f"{answered}; {self.minimum_share:.0%} have to be"


_FILE = msgspec.json.Decoder(Acceptance)
_LIST = msgspec.json.Decoder(Annotated[list[Prompt], Meta(min_length=1, max_length=MAX_PROMPTS)])


def read_acceptance(raw: bytes) -> Acceptance:
    """Raises `Unprocessable`, naming the prompt."""
    try:
        listed = raw.lstrip()[:1] == b"["
        acceptance = Acceptance(_LIST.decode(raw)) if listed else _FILE.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _refused(str(error), ACCEPTANCE_PART) from None
    check_prompts(acceptance, ACCEPTANCE_PART)
    return acceptance


def check_prompts(acceptance: Acceptance, param: str) -> None:
    """Takes half a second at worst. Raises `Unprocessable`, naming the prompt; `param` is where they came."""
    budget = Budget(MAX_WORK)
    for number, prompt in enumerate(acceptance.prompts):
        if why := _fault(prompt, budget):
            raise _refused(f"prompts[{number}]{why}", param)


def _fault(prompt: Prompt, budget: Budget) -> str | None:
    if (prompt.must_match is None) == (prompt.answer is None):
        return " needs one of 'must_match' and 'answer'"
    try:
        decode_chat(prompt.body("base"))
    except RequestRefused as error:
        return f".input: {error.message}"
    if prompt.must_match is not None:
        try:
            compile_search(prompt.must_match, budget)
        except UnsafePattern as error:
            return f".must_match: {error}"
    return None


def _refused(why: str, param: str) -> Unprocessable:
    return Unprocessable(f"'{param}' is refused: {why[:500]}.", param=param, code="invalid_acceptance")


class Judge:
    """Hears the answers to `acceptance`, in the order of its prompts."""

    def __init__(self, acceptance: Acceptance) -> None:
        self._acceptance = acceptance
        self._budget = Budget(MAX_WORK)
        self._answers: list[Answered] = []

    @property
    def left(self) -> list[Prompt]:
        """Prompts whose answers it has not heard; none once they can't be passed any more."""
        left = self._acceptance.prompts[len(self._answers) :]
        return left if self._share(len(left)) >= self._acceptance.minimum_share else []

    def hear(self, given: Sequence[Given]) -> None:
        """Those to the next prompts. All of a version's take half a second at worst."""
        prompts = self._acceptance.prompts[len(self._answers) :]
        self._answers += [_answered(*pair, self._budget) for pair in zip(prompts, given, strict=False)]

    @property
    def result(self) -> AcceptanceResult:
        """What was not heard was not passed."""
        least, share = self._acceptance.minimum_share, self._share()
        num_prompts = len(self._acceptance.prompts)
        return AcceptanceResult(share >= least, round(share, 4), least, num_prompts, list(self._answers))

    def _share(self, more: int = 0) -> float:
        passed = sum(each.passed for each in self._answers)
        return (passed + more) / len(self._acceptance.prompts)


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
