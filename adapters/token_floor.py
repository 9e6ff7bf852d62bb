"""A floor under the number of a text's tokens, for the price of looking at its bytes once.

Encoding takes time in proportion to the text, and one unbroken run of letters can't be judged by a prefix:
only its end settles its tokens. The floor refuses such a text unread. It holds for byte-level BPE, whose
tokens stand for consecutive bytes of the text: in a window, all tokens but the two at its edges lie inside,
each no longer than the longest token of the vocabulary that is made of bytes which the window has. And where
no token reaches over the end of a word, a text has at least as many tokens as words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from adapters.byte_alphabet import BYTE_OF

WINDOW_BYTES: Final = 16 * 1024
_WORDS: Final = 4  # of 64 bits: a set of bytes
_WORD_END: Final = re.compile(rb"[0-9A-Za-z] ")
_IN_WORDS: Final = np.array([chr(byte).isascii() and chr(byte).isalnum() for byte in range(256)])


class TokenFloor:
    """The vocabulary of one byte-level BPE, by which bytes its tokens hold."""

    def __init__(self, tokens: list[bytes]) -> None:
        self._tokenless = bytes(set(range(256)) - set(b"".join(t for t in tokens if len(t) == 1)))
        self._tokens = sorted(tokens, key=len, reverse=True)
        held = np.frombuffer(b"".join(self._tokens), dtype=np.uint8)
        token = np.repeat(np.arange(len(tokens)), [len(each) for each in self._tokens])
        self._masks = np.zeros((len(tokens), _WORDS), dtype=np.uint64)
        self._ends_at_words = _WORD_END.search(b"\n".join(tokens)) is None
        np.bitwise_or.at(self._masks, (token, held // 64), np.uint64(1) << (held % 64).astype(np.uint64))

    def passes(self, text: bytes, limit: int) -> bool:
        """Whether the text has more than `limit` tokens for certain; False says nothing."""
        text = text.translate(None, self._tokenless)  # a byte without a token of its own is left out
        if self._ends_at_words and _num_word_ends(text) > limit:
            return True
        longest: dict[bytes, int] = {}  # by the bytes of a window: usual text has the same ones all along
        found = 0
        for start in range(0, len(text), WINDOW_BYTES):
            window = np.frombuffer(text[start : start + WINDOW_BYTES], dtype=np.uint8)
            held = _set_of(window)
            key = held.tobytes()
            if key not in longest:
                longest[key] = self._longest(held)
            found += max(0, -(-(len(window) - 2 * (len(self._tokens[0]) - 1)) // longest[key]))
            if found > limit:
                return True
        return False

    def _longest(self, held: NDArray[np.uint64]) -> int:
        """Bytes of the longest token that is made of these bytes only; each of them is a token."""
        possible = ~(self._masks & ~held).any(axis=1)
        return len(self._tokens[int(possible.argmax())])


def token_floor(tokenizer: Mapping[str, Any]) -> TokenFloor | None:
    """The floor of a tokenizer.json; None where the tokens don't add up to the text's own bytes, so that no
    floor can be proved."""
    model = tokenizer["model"]
    added = tokenizer.get("added_tokens") or []
    if model.get("type") != "BPE" or tokenizer.get("normalizer") is not None:
        return None
    if not _keeps_every_byte(tokenizer.get("pre_tokenizer")):
        return None
    if any(token.get("lstrip") or token.get("rstrip") for token in added):
        return None
    special = {token["content"] for token in added}
    plain = [token for token in model["vocab"] if token not in special]
    if not set("".join(plain)) <= BYTE_OF.keys():
        return None
    to_latin = {ord(character): byte for character, byte in BYTE_OF.items()}
    tokens = [token.translate(to_latin).encode("latin-1") for token in plain]
    return TokenFloor([*tokens, *(content.encode() for content in special)])


def _keeps_every_byte(part: Mapping[str, Any] | None) -> bool:
    """Byte-level, and nothing before it that takes characters away."""
    parts = part["pretokenizers"] if part is not None and part.get("type") == "Sequence" else [part]
    kinds = [each.get("type") if each is not None else None for each in parts]
    removes = any(each is not None and each.get("behavior") == "Removed" for each in parts)
    return (
        "ByteLevel" in kinds and set(kinds) <= {"ByteLevel", "Digits", "Split", "Punctuation"} and not removes
    )


def _num_word_ends(text: bytes) -> int:
    """How often a letter or digit stands before a space."""
    held = np.frombuffer(text, dtype=np.uint8)
    return int(np.count_nonzero(_IN_WORDS[held[:-1]] & (held[1:] == 0x20)))


def _set_of(window: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The bytes that a window has, a bit each."""
    present = np.zeros(256, dtype=np.bool_)
    present[window] = True
    return np.packbits(present, bitorder="little").view("<u8")
