from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from adapters import ascii_bpe
from adapters.ascii_bpe import AsciiWords

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = _CONTRACTIONS + r"\p{N}{1,3}" + _REST
QWEN = _CONTRACTIONS + r"\p{N}" + _REST
ADDED = ("<|im_start|>", "<|im_end|>", "<|im|>", "<a>", "<a><b>")
SEEDS = st.sampled_from(
    [
        *ADDED,
        "don't",
        "I'LL",
        "we're",
        " the",
        "  ",
        "\n\n",
        "\r\n",
        " \t",
        "12345",
        "x1",
        "...",
        "?!\n",
        "'",
        "<|im",
    ]
)
TEXTS = st.lists(
    SEEDS | st.text(st.characters(max_codepoint=126, min_codepoint=9), max_size=8), max_size=24
).map("".join)


def made(pattern: str | None) -> Tokenizer:
    """A tokenizer that was trained on this file."""
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    split = [] if pattern is None else [pre_tokenizers.Split(Regex(pattern), "isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*split, byte_level]) if split else byte_level
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train([__file__], trainer)
    tokenizer.add_special_tokens([*ADDED])
    return tokenizer


def words_of(tokenizer: Tokenizer) -> AsciiWords:
    found = AsciiWords.of(json.loads(tokenizer.to_str()), tokenizer)
    assert found is not None
    return found


@pytest.fixture(scope="module", params=["gpt2", "llama3", "qwen"])
def pair(request: pytest.FixtureRequest) -> tuple[Tokenizer, AsciiWords]:
    tokenizer = made({"gpt2": None, "llama3": LLAMA3, "qwen": QWEN}[request.param])
    return tokenizer, words_of(tokenizer)


@settings(max_examples=400, deadline=None)
@given(text=TEXTS)
def test_the_tokenizers_ids(pair: tuple[Tokenizer, AsciiWords], text: str) -> None:
    tokenizer, words = pair
    ids = words.encode(text)
    if any(ord(char) < 32 and char not in "\t\n\r" for char in text):
        assert ids is None
    else:
        assert ids == tokenizer.encode(text, add_special_tokens=False).ids


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_the_demo_models_ids(demo_model_dir: Path, text: str) -> None:
    tokenizer = _demo(demo_model_dir)
    ids = _words(demo_model_dir).encode(text)
    assert ids is None or ids == tokenizer.encode(text, add_special_tokens=False).ids


_OPENED: dict[Path, tuple[Tokenizer, AsciiWords]] = {}


def _demo(folder: Path) -> Tokenizer:
    if folder not in _OPENED:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        _OPENED[folder] = tokenizer, words_of(tokenizer)
    return _OPENED[folder][0]


def _words(folder: Path) -> AsciiWords:
    _demo(folder)
    return _OPENED[folder][1]


@pytest.mark.parametrize("text", ["héllo", "世界", "a\u00a0b", "a\x1cb", "a\x0bb", "\x7f"])
def test_what_engines_may_disagree_about_is_left_to_the_tokenizer(
    pair: tuple[Tokenizer, AsciiWords], text: str
) -> None:
    assert pair[1].encode(text) is None


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ascii_bpe, "MAX_WORDS", 10)
    tokenizer = made(None)
    words = words_of(tokenizer)
    for number in range(200):
        text = f"word{number} {'x' * (number % 40)} {number}"
        assert words.encode(text) == tokenizer.encode(text, add_special_tokens=False).ids
        assert len(words._ids) <= 10


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "Lowercase"}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"pre_tokenizer": {"type": "ByteLevel", "use_regex": True, "add_prefix_space": True}},
        {"model": {"type": "Unigram"}},
        {"model": {"type": "BPE", "dropout": 0.1}},
        {"added_tokens": [{"id": 1, "content": "<a>", "lstrip": True}]},
        {"added_tokens": [{"id": 1, "content": "<a>", "normalized": True}, {"id": 2, "content": "<a>b"}]},
    ],
)
def test_tokenizers_of_another_kind_are_left_alone(change: dict[str, object]) -> None:
    tokenizer = made(None)
    assert AsciiWords.of(json.loads(tokenizer.to_str()) | change, tokenizer) is None


@pytest.mark.parametrize("pattern", [r"\w+", r"\p{Lu}+", r"\d+", "(", r"(\p{L}+)|[^\p{L}]+"])
def test_a_pattern_that_ascii_does_not_settle_is_left_alone(pattern: str) -> None:
    tokenizer = made(None)
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "use_regex": False, "add_prefix_space": False}
    change = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]}}
    assert AsciiWords.of(json.loads(tokenizer.to_str()) | change, tokenizer) is None


def test_a_pattern_with_gaps_is_noticed() -> None:
    tokenizer = made(r"\p{L}+")
    words = words_of(tokenizer)
    assert words.encode("abc") == tokenizer.encode("abc", add_special_tokens=False).ids
    assert words.encode("abc 1") is None
