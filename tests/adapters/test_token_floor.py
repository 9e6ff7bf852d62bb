"""The floor never says more than the tokenizer does, and says enough of what would take long to encode."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from adapters import token_floor as module
from adapters.token_floor import TokenFloor, token_floor


@pytest.fixture(scope="session")
def facts(demo_model_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((demo_model_dir / "tokenizer.json").read_bytes())
    return found


@pytest.fixture(scope="session")
def tokenizer(demo_model_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(demo_model_dir / "tokenizer.json"))


@pytest.fixture(scope="session")
def floor(facts: dict[str, Any]) -> TokenFloor:
    found = token_floor(facts)
    assert found is not None
    return found


RUNS = [
    "a",
    "=",
    " ",
    "\n",
    "汉",
    "🎭",
    "-",
    "\t",
    "ab",
    "the",
    "<|im_start|>",
    "é",
    "1",
    "word ",
    "1 2,",
    "abcdefghij",
    "\x04",
    "a\x04",
]


@settings(max_examples=200, deadline=None)
@given(parts=st.lists(st.tuples(st.sampled_from(RUNS), st.integers(1, 3_000)), min_size=1, max_size=6))
def test_it_never_exceeds_the_count(
    floor: TokenFloor, tokenizer: Tokenizer, parts: list[tuple[str, int]]
) -> None:
    text = "".join(run * times for run, times in parts)
    count = len(tokenizer.encode(text).ids)
    assert not floor.passes(text.encode(), count)


def test_windows_that_cut_tokens(
    floor: TokenFloor, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = "".join(random.Random(4).choices(["=" * 64, "-" * 80, " " * 60, "word ", "汉字"], k=300))
    longest = "=" * 64 * 300  # nothing but tokens of the greatest length that its bytes have
    for text in (mixed, longest):
        count = len(tokenizer.encode(text).ids)
        for size in (170, 171, 257, 1_000):
            monkeypatch.setattr(module, "WINDOW_BYTES", size)
            assert not floor.passes(text.encode(), count)


@pytest.mark.parametrize("run", ["a", "ab", "汉字", "qz"])
def test_an_unbroken_run_passes(floor: TokenFloor, run: str) -> None:
    assert floor.passes((run * 600_000)[:600_000].encode(), 8_192)


def test_a_run_behind_all_letters_passes_too(floor: TokenFloor) -> None:
    text = "".join(map(chr, range(32, 127))) * 40 + "a" * 600_000
    assert floor.passes(text.encode(), 8_192)


def test_more_words_than_tokens_allowed(floor: TokenFloor, tokenizer: Tokenizer) -> None:
    text = "It has 8 of 9 lives, and 1 more. " * 40
    words = text.count(" ") - 2 * 40  # a comma or a full stop is no part of a word
    assert floor.passes(text.encode(), words - 1)
    assert not floor.passes(text.encode(), len(tokenizer.encode(text).ids))


def test_a_text_without_a_token(floor: TokenFloor) -> None:
    assert not floor.passes(b"\x04" * 9_000, 10)
    assert not floor.passes(b"", 0)


def test_words_prove_nothing_where_a_token_holds_two(facts: dict[str, Any]) -> None:
    joined = [*facts["added_tokens"], {"content": "New York"}]
    floor = token_floor({**facts, "added_tokens": joined})
    assert floor is not None
    assert not floor.passes(b"New York " * 100, 150)


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "NFC"}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"pre_tokenizer": None},
        {"added_tokens": [{"content": "<m>", "lstrip": True}]},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "behavior": "Removed"}, {"type": "ByteLevel"}]}},
        {"model": {"type": "Unigram", "vocab": []}},
        {"model": {"type": "BPE", "vocab": {"\u2581a": 0}}},
    ],
)  # fmt: skip
def test_no_floor_where_none_can_be_proved(facts: dict[str, Any], change: dict[str, Any]) -> None:
    assert token_floor({**facts, **change}) is None
