"""The bytes behind each token id, read once from `tokenizer.json`.

Text is rebuilt from bytes, not from the decoder's strings, because one character may span several tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from adapters.byte_alphabet import BYTE_OF

_SPACE = "\u2581"  # SentencePiece writes a space so
_BYTE = re.compile(r"^<0x([0-9A-Fa-f]{2})>$")


class TokenizerUnsupported(Exception):
    """The tokenizer turns tokens into text in a way not known here."""


class TokenText:
    """`text(id)` is what a token adds to the answer (nothing, for a special token); `shown(id)` is what it is
    called in log-probabilities. Ids past the vocabulary (padding rows of the embedding) have no bytes."""

    def __init__(self, model_dir: Path) -> None:
        document = msgspec.json.decode((model_dir / "tokenizer.json").read_bytes())
        to_bytes = _decoder_of(document.get("decoder"))
        vocabulary = _vocabulary_of(document["model"])
        added: dict[int, dict[str, Any]] = {token["id"]: token for token in document.get("added_tokens", ())}
        size = 1 + max(max(vocabulary.values(), default=0), max(added, default=0))
        self._shown = [b""] * size
        for token, index in vocabulary.items():
            self._shown[index] = to_bytes(token)
        for index, extra in added.items():
            self._shown[index] = to_bytes(extra["content"])
        self._text = list(self._shown)
        for index, extra in added.items():
            if extra["special"]:
                self._text[index] = b""
        self._size = size

    def text(self, token: int) -> bytes:
        return self._text[token] if token < self._size else b""

    def shown(self, token: int) -> bytes:
        return self._shown[token] if token < self._size else b""


def _vocabulary_of(model: dict[str, Any]) -> dict[str, int]:
    vocabulary = model["vocab"]
    if not isinstance(vocabulary, dict):
        raise TokenizerUnsupported(f"tokenizer model {model.get('type')!r} is not supported; BPE is")
    return vocabulary


def _decoder_of(decoder: dict[str, Any] | None) -> Callable[[str], bytes]:
    steps = {step["type"] for step in _steps(decoder)}
    if steps == {"ByteLevel"}:
        return _byte_level
    if steps <= {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"} and steps:
        return _sentence_piece
    raise TokenizerUnsupported(f"tokenizer decoder {sorted(steps)} is not supported")


def _steps(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    return list(decoder["decoders"]) if decoder["type"] == "Sequence" else [decoder]


def _sentence_piece(token: str) -> bytes:
    byte = _BYTE.match(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace(_SPACE, " ").encode()


def _byte_level(token: str) -> bytes:
    # a token with any character outside the alphabet (an added one) stands for itself, as in `tokenizers`
    try:
        return bytes(BYTE_OF[character] for character in token)
    except KeyError:
        return token.encode()
