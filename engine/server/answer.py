"""The answer to one request: pieces to SSE frames, or to one body at the end. One class an endpoint."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine.core.protocol import Ended, FinishReason, TokenLogprob
from engine.server import wire
from engine.server.detokenize import Piece
from engine.server.token_text import TokenText
from engine.server.transcript import Echo


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """What both endpoints need to know to write an answer."""

    request: str
    model: str
    fingerprint: str
    num_choices: int
    prompt: list[int]
    with_usage: bool = False
    with_token_ids: bool = False
    num_logprobs: int | None = None  # best tokens to tell beside the chosen one; None = no log-probabilities
    created: int = field(default_factory=lambda: int(time.time()))


class Answer(Protocol):
    """Either `frames` (streaming) or `gather` is called with every piece, then `end`."""

    def frames(self, piece: Piece, echo: Echo | None) -> bytes: ...

    def gather(self, piece: Piece, echo: Echo | None) -> None: ...

    def last_frames(self, ended: Ended) -> bytes: ...

    def body(self, ended: Ended) -> bytes: ...


@dataclass(slots=True)
class _Gathered:
    """One choice, as far as it has come (unary answers)."""

    texts: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    chat_logprobs: list[wire.ChatLogprob] = field(default_factory=list)
    text_logprobs: wire.TextLogprobs = field(default_factory=wire.TextLogprobs)
    finish: FinishReason | None = None

    def add(self, piece: Piece) -> None:
        self.texts.append(piece.text)
        self.tokens.extend(piece.tokens)
        self.finish = piece.finish or self.finish

    @property
    def finish_reason(self) -> FinishReason:
        assert self.finish is not None, "the core ends each choice before the attempt"
        return self.finish


class _Base:
    object_name: str
    chunk_name: str
    id_prefix: str

    def __init__(self, shape: AnswerShape, table: TokenText) -> None:
        self._shape = shape
        self._table = table
        self._started = [False] * shape.num_choices
        self._gathered = [_Gathered() for _ in range(shape.num_choices)]
        self._frame = wire.ChunkFrame(self._heading(self.chunk_name), shape.with_usage)
        self._prompt_sent = False

    def last_frames(self, ended: Ended) -> bytes:
        """The end of a stream that went well."""
        usage = self._frame.usage(ended.usage) if self._shape.with_usage else b""
        return usage + wire.DONE

    def _heading(self, name: str) -> wire.Heading:
        shape = self._shape
        return wire.Heading(
            id=self.id_prefix + shape.request,
            object=name,
            created=shape.created,
            model=shape.model,
            system_fingerprint=shape.fingerprint,
        )

    def _starts(self, choice: int) -> bool:
        """Whether this is the choice's first piece; true once."""
        first, self._started[choice] = not self._started[choice], True
        return first

    def _token_ids(self, tokens: list[int]) -> bytes:
        return b',"token_ids":' + wire.encode(tokens) if self._shape.with_token_ids else b""


class ChatAnswer(_Base):
    """`/v1/chat/completions`."""

    object_name = "chat.completion"
    chunk_name = "chat.completion.chunk"
    id_prefix = "chatcmpl-"

    def frames(self, piece: Piece, echo: Echo | None) -> bytes:
        parts: list[bytes] = []
        index = b'{"index":%d,"delta":' % piece.choice
        if self._starts(piece.choice):
            start = b'{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
            parts.append(self._frame.choice(index + start, self._prompt_ids()))
        scores, ids = self._scores(piece), self._token_ids(piece.tokens)
        if piece.text or (piece.finish is None and (scores != b"null" or ids)):
            delta = b'{"content":%b},"logprobs":%b,"finish_reason":null%b}'
            parts.append(self._frame.choice(index + delta % (wire.encode(piece.text), scores, ids)))
            scores, ids = b"null", self._token_ids([])
        if piece.finish is not None:
            end = b'{},"logprobs":%b,"finish_reason":%b%b}' % (scores, wire.encode(piece.finish), ids)
            parts.append(self._frame.choice(index + end))
        return b"".join(parts)

    def gather(self, piece: Piece, echo: Echo | None) -> None:
        choice = self._gathered[piece.choice]
        choice.add(piece)
        if self._shape.num_logprobs is not None:
            choice.chat_logprobs.extend(wire.chat_logprobs(piece, self._table))

    def body(self, ended: Ended) -> bytes:
        heading, shape = self._heading(self.object_name), self._shape
        choices = [
            wire.ChatChoice(
                index=index,
                message=wire.ChatMessage("".join(choice.texts)),
                logprobs=wire.ChatLogprobs(choice.chat_logprobs) if shape.num_logprobs is not None else None,
                finish_reason=choice.finish_reason,
                token_ids=choice.tokens if shape.with_token_ids else None,
            )
            for index, choice in enumerate(self._gathered)
        ]
        body = wire.ChatBody(
            id=heading.id,
            object=heading.object,
            created=heading.created,
            model=heading.model,
            system_fingerprint=heading.system_fingerprint,
            choices=choices,
            usage=wire.usage_body(ended.usage),
            prompt_token_ids=shape.prompt if shape.with_token_ids else None,
        )
        return wire.encode(body)

    def _scores(self, piece: Piece) -> bytes:
        if self._shape.num_logprobs is None:
            return b"null"
        return wire.encode(wire.ChatLogprobs(wire.chat_logprobs(piece, self._table)))

    def _prompt_ids(self) -> bytes:
        if not self._shape.with_token_ids or self._prompt_sent:
            return b""
        self._prompt_sent = True
        return b',"prompt_token_ids":' + wire.encode(self._shape.prompt)


class TextAnswer(_Base):
    """`/v1/completions`."""

    object_name = chunk_name = "text_completion"
    id_prefix = "cmpl-"

    def __init__(self, shape: AnswerShape, table: TokenText) -> None:
        super().__init__(shape, table)
        self._echo_scores: wire.TextLogprobs | None = None

    def frames(self, piece: Piece, echo: Echo | None) -> bytes:
        first = self._starts(piece.choice)
        before = echo if first else None
        text = (before.text if before else "") + piece.text
        scores = wire.encode(self._scores(piece, echo, before))
        extra = self._token_ids(piece.tokens)
        if first and self._shape.with_token_ids:
            extra += b',"prompt_token_ids":' + wire.encode(self._shape.prompt)
        if not text and piece.finish is None and scores == b"null" and not extra:
            return b""
        finish = wire.encode(piece.finish)
        choice = b'{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b%b}'
        return self._frame.choice(choice % (piece.choice, wire.encode(text), scores, finish, extra))

    def gather(self, piece: Piece, echo: Echo | None) -> None:
        choice = self._gathered[piece.choice]
        before = echo if self._starts(piece.choice) else None
        if before is not None:
            choice.texts.append(before.text)
        choice.add(piece)
        if scores := self._scores(piece, echo, before):
            choice.text_logprobs.extend(scores)

    def body(self, ended: Ended) -> bytes:
        heading, shape = self._heading(self.object_name), self._shape
        choices = [
            wire.TextChoice(
                index=index,
                text="".join(choice.texts),
                logprobs=choice.text_logprobs if shape.num_logprobs is not None else None,
                finish_reason=choice.finish_reason,
                token_ids=choice.tokens if shape.with_token_ids else None,
                prompt_token_ids=shape.prompt if shape.with_token_ids else None,
            )
            for index, choice in enumerate(self._gathered)
        ]
        body = wire.TextBody(
            id=heading.id,
            object=heading.object,
            created=heading.created,
            model=heading.model,
            system_fingerprint=heading.system_fingerprint,
            choices=choices,
            usage=wire.usage_body(ended.usage),
        )
        return wire.encode(body)

    def _scores(self, piece: Piece, echo: Echo | None, before: Echo | None) -> wire.TextLogprobs | None:
        """Log-probabilities of a piece, those of the prompt before them on a choice's first."""
        if self._shape.num_logprobs is None:
            return None
        shift = len(echo.text) if echo else 0
        scores = self._told(piece.tokens, piece.logprobs or (), [shift + offset for offset in piece.offsets])
        if before is None:
            return scores
        whole = wire.TextLogprobs()
        whole.extend(self._scores_of(before))
        whole.extend(scores)
        return whole

    def _scores_of(self, echo: Echo) -> wire.TextLogprobs:
        """A prompt may be long, and stands before each choice: it is scored once."""
        if self._echo_scores is None:
            self._echo_scores = self._told(echo.tokens, echo.logprobs, echo.offsets)
        return self._echo_scores

    def _told(
        self, tokens: Sequence[int], logprobs: Sequence[TokenLogprob | None], offsets: Sequence[int]
    ) -> wire.TextLogprobs:
        assert self._shape.num_logprobs is not None
        return wire.text_logprobs(tokens, logprobs, offsets, self._table, self._shape.num_logprobs)
