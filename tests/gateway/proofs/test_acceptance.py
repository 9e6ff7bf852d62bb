"""Which prompts are taken, and when an answer is what they ask for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.errors import Unprocessable
from gateway.proofs.acceptance import Acceptance, AcceptanceResult, Given, Judge, Prompt, read_acceptance

ONE = {"input": "x", "answer": "y"}


def judge(acceptance: Acceptance, given: list[Given]) -> AcceptanceResult:
    said = Judge(acceptance)
    said.hear(given)
    return said.result


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "length"),
        ([ONE] * 33, "length"),
        ([{"input": "x"}], r"prompts\[0\] needs one of"),
        ([ONE, {**ONE, "must_match": "y"}], r"prompts\[1\] needs one of"),
        ([{"input": "x", "must_match": "(?=x)"}], "look-around"),
        ([{"input": "x", "must_match": "((a{0,100}){0,100}){0,100}"}], "beyond 8192 states"),
        ([{"input": "x", "must_match": "(x"}], "ends too early"),
        ([{"input": [{"role": "pirate", "content": "x"}], "answer": "y"}], r"prompts\[0\].input"),
        ([{"input": "x" * 20_000, "answer": "y"}], "length"),
        ([{**ONE, "temperature": 1}], "temperature"),
        ({"prompts": [ONE], "minimum_share": 1.5}, "minimum_share"),
        ({"prompts": [ONE], "share": 0.5}, "share"),
        ("x", "Expected"),
    ],
)
def test_what_is_refused(given: Any, why: str) -> None:
    with pytest.raises(Unprocessable, match=why) as refused:
        read_acceptance(msgspec.json.encode(given))
    assert (refused.value.code, refused.value.param) == ("invalid_acceptance", "acceptance.json")


def test_what_is_no_json_is_refused() -> None:
    for raw in (b"", b"[", b"\xff\xfe", b'[{"input": "\xff", "answer": "y"}]'):
        with pytest.raises(Unprocessable):
            read_acceptance(raw)


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("hello", "well, hello there", True),
        ("^hello$", "well, hello there", False),
        ("h.llo", "h世llo", True),
        ("世界", "Hello 世界!", True),
        ("世[^x]!", "Hello 世界!", True),
        (r"\Whello", "über hello", True),
        (r"^\w+$", "über", False),  # classes are those of ASCII
        ("(a+)+$", "a" * 200_000 + "b", False),  # hours, for a matcher that backtracks
    ],
)
def test_a_pattern_occurs_in_an_answer(pattern: str, text: str, fits: bool) -> None:
    acceptance = read_acceptance(msgspec.json.encode([{"input": "x", "must_match": pattern}]))
    assert judge(acceptance, [Given(text)]).passed is fits


def test_the_share_decides_and_a_refused_prompt_counts_against_it() -> None:
    prompts = [{"input": "x", "answer": "yes"}] * 4
    acceptance = read_acceptance(msgspec.json.encode({"prompts": prompts, "minimum_share": 0.5}))
    good, bad, refused = Given(" yes\n"), Given("no"), Given("yes", refused=True)
    assert (acceptance.prompts[0].max_tokens, Prompt("x", must_match="y").max_tokens) == (11, 256)
    result = judge(acceptance, [good, good, bad, refused])
    assert (result.passed, result.share) == (True, 0.5)
    assert [each.passed for each in result.answers] == [True, True, False, False]
    assert not judge(acceptance, [good, bad, bad, refused]).passed


def test_no_more_is_asked_once_it_can_not_be_passed() -> None:
    prompts = [{"input": str(number), "answer": "yes"} for number in range(5)]
    said = Judge(read_acceptance(msgspec.json.encode({"prompts": prompts, "minimum_share": 0.6})))
    said.hear([Given("no"), Given("yes"), Given("no")])
    assert [prompt.input for prompt in said.left] == ["3", "4"]
    said.hear([Given("no")])
    assert said.left == []
    assert (said.result.passed, said.result.share, said.result.num_passed) == (False, 0.2, 1)
    assert said.result.told == "1 of 5 prompts were answered as asked and 1 not asked; 60% have to be"


def test_a_long_answer_is_shown_by_its_beginning() -> None:
    acceptance = read_acceptance(msgspec.json.encode([{"input": "x", "must_match": "end$"}]))
    (answered,) = judge(acceptance, [Given("a" * 50_000 + "end")]).answers
    assert (answered.passed, len(answered.text)) == (True, 2_000)
