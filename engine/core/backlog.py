"""Frames that wait for a reader, with the tokens of each choice gathered into one frame.

Nothing is held back for the sake of gathering: what is read at once stays one token a frame.
"""

from __future__ import annotations

from itertools import islice
from typing import Generic, TypeVar

import msgspec

from engine.core.protocol import Stats, TokenLogprob, Tokens

F = TypeVar("F")


class Backlog(Generic[F]):
    """In order of each choice's first waiting token; of `Stats`, the newest stands for all. Adding costs the
    same however much waits."""

    def __init__(self) -> None:
        self._waiting: dict[object, F | list[Tokens]] = {}
        self._number = 0

    def __len__(self) -> int:
        """Frames that `frames` would give."""
        return len(self._waiting)

    def add(self, frame: F) -> None:
        if isinstance(frame, Tokens):
            key = (frame.request, frame.attempt, frame.choice)
            gathered = self._waiting.setdefault(key, [])
            assert isinstance(gathered, list)
            assert not gathered or gathered[-1].finish is None, "nothing follows a choice's last frame"
            gathered.append(frame)
        elif isinstance(frame, Stats):
            self._waiting[Stats] = frame
        else:
            self._number += 1
            self._waiting[self._number] = frame

    def frames(self, limit: int | None = None) -> list[F | Tokens]:
        """The first `limit` frames, or all."""
        found = islice(self._waiting.values(), limit)
        return [merge_tokens(frame) if isinstance(frame, list) else frame for frame in found]

    def drop(self, count: int) -> None:
        """Forgets the first `count` frames."""
        for key in list(islice(self._waiting, count)):
            del self._waiting[key]

    def take(self) -> list[F | Tokens]:
        frames = self.frames()
        self._waiting.clear()
        return frames


def merge_tokens(frames: list[Tokens]) -> Tokens:
    """One frame that says what successive frames of a choice say."""
    first, last = frames[0], frames[-1]
    if first is last:
        return first
    logprobs: list[TokenLogprob] | None = None
    if any(frame.logprobs is not None for frame in frames):
        logprobs = [scored for frame in frames for scored in frame.logprobs or ()]
    return msgspec.structs.replace(
        last,
        tokens=[token for frame in frames for token in frame.tokens],
        logprobs=logprobs,
        prompt_logprobs=first.prompt_logprobs,
    )
