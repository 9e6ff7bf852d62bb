"""Byte-level BPE of short ASCII texts, word by word from memory: the tokenizer's ids at a third of its cost,
since the gateway counts every prompt.

A byte-level tokenizer splits a text at its added tokens, then into words by a regular expression, and encodes
each word by itself (Sennrich et al., 2016; Radford et al., 2019). So a word's ids are kept once known. Only
ASCII is taken: about letters and spaces beyond it, engines of different Unicode versions disagree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tokenizers import Tokenizer

from adapters.byte_alphabet import BYTE_OF

MAX_WORDS: Final = 65_536
"""Kept at a time; then all are forgotten, which costs a few milliseconds of encoding them again."""
MAX_WORD_CHARS: Final = 32

GPT2_PATTERN: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_ASCII_OF: Final = {r"\p{L}": "A-Za-z", r"\p{N}": "0-9"}
_SIMPLE: Final = re.compile(r"[\t\n\r -~]*")
_PIECES: Final = re.compile(r"\\p\{[LN]\}|\\.|\[|\]|.", re.DOTALL)
_ALPHABET: Final = {byte: char for char, byte in BYTE_OF.items()}


class AsciiWords:
    """Thread-safe; holds words that many texts have, and nothing of where they came from."""

    def __init__(self, tokenizer: Tokenizer, words: re.Pattern[str], added: Mapping[str, int]) -> None:
        self._model = tokenizer.model
        self._words = words
        self._added = dict(added)
        longest_first = sorted(map(re.escape, added), key=len, reverse=True)
        self._at_added = re.compile(f"({'|'.join(longest_first)})") if added else None
        self._ids: dict[str, tuple[int, ...]] = {}

    @classmethod
    def of(cls, facts: Mapping[str, Any], tokenizer: Tokenizer) -> AsciiWords | None:
        """None for a tokenizer that isn't of this kind. `facts`: its `tokenizer.json`."""
        model = facts.get("model") or {}
        added = facts.get("added_tokens") or []
        pattern = _pattern_of(facts.get("pre_tokenizer"))
        plain = not any(token.get(mark) for token in added for mark in ("lstrip", "rstrip", "single_word"))
        plain = (
            plain and len({bool(token.get("normalized")) for token in added}) <= 1
        )  # else found in two rounds
        if (
            pattern is None
            or not plain
            or model.get("type") != "BPE"
            or model.get("dropout")
            or (facts.get("normalizer") or {"type": "NFC"})["type"] != "NFC"
            or tokenizer.num_special_tokens_to_add(False)
        ):
            return None
        try:
            words = re.compile(pattern)
        except re.error:
            return None
        if words.groups:
            return None
        return cls(tokenizer, words, {token["content"]: token["id"] for token in added})

    def encode(self, text: str) -> list[int] | None:
        """The tokenizer's ids; None for a text that isn't simple enough."""
        if _SIMPLE.fullmatch(text) is None:
            return None
        ids: list[int] = []
        known = self._ids
        for number, part in enumerate([text] if self._at_added is None else self._at_added.split(text)):
            if number % 2:
                ids.append(self._added[part])
                continue
            words = self._words.findall(part)
            if sum(map(len, words)) != len(part):  # what no word matches would be a word too
                return None
            for word in words:
                ids += known.get(word) or self._learn(word)
        return ids

    def _learn(self, word: str) -> tuple[int, ...]:
        spelled = "".join([_ALPHABET[ord(char)] for char in word])
        ids = tuple(token.id for token in self._model.tokenize(spelled))
        if len(word) <= MAX_WORD_CHARS:
            if len(self._ids) >= MAX_WORDS:
                self._ids.clear()
            self._ids[word] = ids
        return ids


def _pattern_of(pre_tokenizer: Any) -> str | None:
    """How words are found, for ASCII; None when it is done in another way."""
    match pre_tokenizer:
        case {"type": "ByteLevel", "use_regex": True, "add_prefix_space": False}:
            return _in_ascii(GPT2_PATTERN)
        case {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": str(pattern)},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {"type": "ByteLevel", "use_regex": False, "add_prefix_space": False},
            ],
        }:
            return _in_ascii(pattern)
    return None


def _in_ascii(pattern: str) -> str | None:
    """The pattern with its letters and numbers cut down to ASCII. None when that doesn't settle it."""
    inside, parts = False, []
    for piece in _PIECES.findall(pattern):
        if piece in _ASCII_OF:
            parts.append(_ASCII_OF[piece] if inside else f"[{_ASCII_OF[piece]}]")
            continue
        if piece.startswith((r"\p", r"\P", r"\w", r"\d", r"\b", r"\X")):
            return None
        inside = (inside or piece == "[") and piece != "]"
        parts.append(piece)
    return "".join(parts)
