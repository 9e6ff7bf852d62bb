"""Frames of one request to pieces of its choices' texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from engine.core.protocol import TokenLogprob, Tokens
from engine.server.detokenize import ChoiceText, Piece, incremental_utf8
from engine.server.token_text import TokenText


@dataclass(frozen=True, slots=True)
class Shape:
    """What the answer is to look like, apart from how tokens are chosen."""

    num_choices: int
    stops: tuple[str, ...]
    min_tokens: int
    prompt: list[int]
    echo: str | None = None  # the prompt's text, to stand before each choice's
    prompt_logprobs: bool = False


@dataclass(frozen=True, slots=True)
class Echo:
    """The prompt, as it stands before a choice."""

    text: str
    tokens: list[int]
    logprobs: Sequence[TokenLogprob | None]
    offsets: list[int]


class ChoiceEnds:
    """Looks for the ends of a request's choices as their tokens arrive. Its answer is written when the client
    has room for it, which may be long after."""

    def __init__(self, shape: Shape, table: TokenText) -> None:
        self._choices = _choices_of(shape, table)

    def feed(self, frame: Tokens) -> int | None:
        """How many of the choice's tokens stand, with the frame in which it ends; else None."""
        piece = self._choices[frame.choice].feed(frame)
        return None if piece is None else piece.ends_at


def cut_frame(frame: Tokens, most: int) -> Iterator[Tokens]:
    """The same in frames of at most `most` tokens."""
    count = len(frame.tokens)
    if count <= most:
        yield frame
        return
    for start in range(0, count, most):
        stop = start + most
        yield msgspec.structs.replace(
            frame,
            tokens=frame.tokens[start:stop],
            logprobs=None if frame.logprobs is None else frame.logprobs[start:stop],
            finish=frame.finish if stop >= count else None,
            stop_token=frame.stop_token if stop >= count else None,
            prompt_logprobs=frame.prompt_logprobs if start == 0 else None,
        )


class Transcript:
    """All choices of one request."""

    def __init__(self, shape: Shape, table: TokenText) -> None:
        self._choices = _choices_of(shape, table)
        self._shape = shape
        self._table = table
        self._early: list[Tokens] = []  # came before the prompt's log-probabilities did
        self._waits = shape.prompt_logprobs
        self.echo: Echo | None = None if self._waits else self._echo(())

    def feed(self, frame: Tokens) -> list[Piece]:
        """The pieces this frame adds, in order."""
        if not self._waits:
            return self._pieces((frame,))
        if frame.prompt_logprobs is None:
            self._early.append(frame)
            return []
        self._waits = False
        self.echo = self._echo(frame.prompt_logprobs)
        early, self._early = self._early, []
        return self._pieces((frame, *early))

    def _pieces(self, frames: Sequence[Tokens]) -> list[Piece]:
        pieces = (self._choices[frame.choice].feed(frame) for frame in frames)
        return [piece for piece in pieces if piece is not None]

    def _echo(self, logprobs: Sequence[TokenLogprob | None]) -> Echo | None:
        text, prompt = self._shape.echo, self._shape.prompt
        if text is None:
            return None
        if not logprobs:
            return Echo(text, prompt, (), [])
        return Echo(text, prompt, logprobs, list(_offsets_in(text, prompt, self._table)))


def _choices_of(shape: Shape, table: TokenText) -> list[ChoiceText]:
    return [ChoiceText(index, table, shape.stops, shape.min_tokens) for index in range(shape.num_choices)]


def _offsets_in(text: str, prompt: Sequence[int], table: TokenText) -> Iterator[int]:
    """Where each token of a prompt begins in its text. A special token is in it only where it is spelled out;
    one that the tokenizer added takes no room."""
    decoder, offset = incremental_utf8(), 0
    for token in prompt:
        yield offset
        if data := table.text(token):
            offset += len(decoder.decode(data))
        elif text.startswith(spelled := table.shown(token).decode("utf-8", "replace"), offset):
            offset += len(spelled)
