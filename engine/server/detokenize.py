"""Tokens of one choice to text, one token at a time, and the stop strings in it.

Both are exact: a character split over tokens appears once it is whole, and a stop string is found wherever
token borders fall. The work per token doesn't grow with the length of the answer.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.core.protocol import FinishReason, TokenLogprob, Tokens
from engine.server.token_text import TokenText

_UTF8 = codecs.getincrementaldecoder("utf-8")


def incremental_utf8() -> codecs.IncrementalDecoder:
    """Gives a character once it is whole, and U+FFFD for what will never be one."""
    return _UTF8("replace")


class StopScanner:
    """Finds the stop string that is complete first (of two complete at the same character, the longer one).

    A Knuth-Morris-Pratt automaton per stop string: its state is the length of the longest prefix of the stop
    string that ends the text so far, which is also the text that must be held back.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = sorted(stops, key=len, reverse=True)
        self._starts = frozenset(stop[0] for stop in stops)
        self._falls = [_falls_of(stop) for stop in self._stops]
        self._states = [0] * len(self._stops)
        self._held = ""

    def scan(self, text: str) -> tuple[str, bool]:
        """The text that may go out, and whether a stop string was found (then it ends before that)."""
        if not self._held and self._starts.isdisjoint(text):  # usual text begins no stop string
            return text, False
        pending = self._held + text
        for position, character in enumerate(text, len(self._held) + 1):
            length = self._step(character)
            if length:
                return pending[: position - length], True
        free = len(pending) - max(self._states)
        self._held = pending[free:]
        return pending[:free], False

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held

    def _step(self, character: str) -> int:
        found = 0
        for index, stop in enumerate(self._stops):
            state, falls = self._states[index], self._falls[index]
            while state and stop[state] != character:
                state = falls[state]
            state += stop[state] == character
            if state == len(stop):
                found = max(found, state)
                state = 0  # the scan ends here; the state is never read again
            self._states[index] = state
        return found


def _falls_of(stop: str) -> list[int]:
    """falls[k]: length of the longest proper prefix of stop[:k] that also ends it."""
    falls = [0, 0]
    for k in range(1, len(stop)):
        state = falls[k]
        while state and stop[state] != stop[k]:
            state = falls[state]
        falls.append(state + (stop[state] == stop[k]))
    return falls


@dataclass(slots=True)
class Piece:
    """What one frame adds to a choice."""

    choice: int
    text: str
    tokens: list[int]
    logprobs: Sequence[TokenLogprob | None] | None  # as many as tokens
    offsets: list[int] = field(default_factory=list)  # characters of the choice's text before each token
    finish: FinishReason | None = None
    ends_at: int | None = None  # on the last piece: how many of the choice's tokens stand


class ChoiceText:
    """The text of one choice. `feed` returns None once the choice has ended."""

    def __init__(self, choice: int, table: TokenText, stops: Sequence[str] = (), min_tokens: int = 0) -> None:
        self._choice = choice
        self._table = table
        self._scanner = StopScanner(stops)
        self._min_tokens = min_tokens  # stop strings count only in the text after so many tokens
        self._utf8 = incremental_utf8()
        self._num_chars = 0
        self.num_tokens = 0
        self.ended = False

    def feed(self, frame: Tokens) -> Piece | None:
        if self.ended:
            return None
        texts: list[str] = []
        offsets: list[int] = []
        last = len(frame.tokens) - 1
        for index, token in enumerate(frame.tokens):
            silent = frame.stop_token is not None and index == last
            offsets.append(self._num_chars)
            text, hit = self._add(b"" if silent else self._table.text(token))
            texts.append(text)
            if hit:
                return self._stopped(frame, "".join(texts), offsets)
        if frame.finish is not None:
            self.ended = True
            texts.append(self._flush())
        ends_at = self.num_tokens if self.ended else None
        return Piece(
            self._choice, "".join(texts), frame.tokens, frame.logprobs, offsets, frame.finish, ends_at
        )

    def _add(self, data: bytes) -> tuple[str, bool]:
        self.num_tokens += 1
        text = self._utf8.decode(data)
        self._num_chars += len(text)
        if self.num_tokens <= self._min_tokens:
            return text, False
        return self._scanner.scan(text)

    def _stopped(self, frame: Tokens, text: str, offsets: list[int]) -> Piece:
        self.ended = True
        kept = len(offsets)
        logprobs = frame.logprobs[:kept] if frame.logprobs is not None else None
        return Piece(
            self._choice, text, frame.tokens[:kept], logprobs, offsets, FinishReason.STOP, self.num_tokens
        )

    def _flush(self) -> str:
        """What was held back: a stop string that never came, and a character that stayed incomplete. The
        replacement characters of the latter can end a stop string only if a client asked for U+FFFD."""
        tail, hit = self._scanner.scan(self._utf8.decode(b"", final=True))
        return tail if hit else tail + self._scanner.flush()
