"""The JSON of answers, in OpenAI's shape: bodies, stream chunks, log-probabilities, the trailer.

A stream sends one small chunk for nearly every token, so a chunk is put together from a head and a tail that
are encoded once, and only what differs is encoded each time.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from adapters.headers import TRAILER_PREFIX
from engine.core.protocol import Ended, FinishReason, TokenLogprob, Usage
from engine.server.detokenize import Piece
from engine.server.token_text import TokenText

DONE = b"data: [DONE]\n\n"
LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON can't write; the value OpenAI uses."""

encode = msgspec.json.Encoder().encode


class TopLogprob(msgspec.Struct):
    token: str
    bytes: list[int]
    logprob: float


class ChatLogprob(msgspec.Struct):
    token: str
    bytes: list[int]
    logprob: float
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    content: list[ChatLogprob]


class TextLogprobs(msgspec.Struct):
    """The older shape of `/v1/completions`: four lists of the same length."""

    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] = []
    text_offset: list[int] = []

    def extend(self, more: TextLogprobs) -> None:
        """Puts those of later tokens behind."""
        self.tokens += more.tokens
        self.token_logprobs += more.token_logprobs
        self.top_logprobs += more.top_logprobs
        self.text_offset += more.text_offset


class PromptDetails(msgspec.Struct):
    cached_tokens: int


class UsageBody(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class ChatMessage(msgspec.Struct):
    content: str
    role: str = "assistant"


class ChatChoice(msgspec.Struct, omit_defaults=True):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    token_ids: list[int] | None = None


class TextChoice(msgspec.Struct, omit_defaults=True):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: FinishReason
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class Heading(msgspec.Struct, frozen=True):
    """What every chunk of an answer repeats."""

    id: str
    object: str
    created: int  # seconds since 1970
    model: str  # as the client wrote it
    system_fingerprint: str


class ChatBody(msgspec.Struct, omit_defaults=True):
    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: UsageBody
    prompt_token_ids: list[int] | None = None


class TextBody(msgspec.Struct):
    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: UsageBody


class ChunkFrame:
    """Wraps the JSON of `choices` into a whole SSE frame."""

    def __init__(self, heading: Heading, with_usage: bool) -> None:
        self._head = b"data: " + encode(heading)[:-1] + b',"choices":['
        self._tail = b',"usage":null}\n\n' if with_usage else b"}\n\n"

    def choice(self, choice: bytes, extra: bytes = b"") -> bytes:
        """`extra` holds further fields of the chunk, each with a comma before it."""
        return b"".join((self._head, choice, b"]", extra, self._tail))

    def usage(self, usage: Usage) -> bytes:
        return b"".join((self._head, b'],"usage":', encode(usage_body(usage)), b"}\n\n"))


def usage_body(usage: Usage) -> UsageBody:
    total = usage.prompt + usage.completion
    return UsageBody(usage.prompt, usage.completion, total, PromptDetails(usage.cached))


def trailer(ended: Ended) -> bytes:
    """What the gateway learns of an attempt's end (docs/ARCHITECTURE.md, seams)."""
    return encode(
        {
            "usage": ended.usage,
            "timings": ended.timings,
            "tier": ended.tier,
            "outcome": ended.outcome,
            "reason": ended.reason,
        }
    )


def trailer_frame(ended: Ended) -> bytes:
    return TRAILER_PREFIX + trailer(ended) + b"\n\n"


def error_frame(openai_body: bytes) -> bytes:
    return b"data: " + openai_body + b"\n\n"


def chat_logprobs(piece: Piece, table: TokenText) -> list[ChatLogprob]:
    return [_chat_logprob(scored, table) for scored in piece.logprobs or () if scored is not None]


def _chat_logprob(scored: TokenLogprob, table: TokenText) -> ChatLogprob:
    top = [TopLogprob(*_name_and_bytes(token, table), _finite(value)) for token, value in scored.top]
    name, data = _name_and_bytes(scored.token, table)
    return ChatLogprob(name, data, _finite(scored.logprob), top)


def _name_and_bytes(token: int, table: TokenText) -> tuple[str, list[int]]:
    data = table.shown(token)
    return data.decode("utf-8", "replace"), list(data)


def text_logprobs(
    tokens: Sequence[int],
    logprobs: Sequence[TokenLogprob | None],
    offsets: Sequence[int],
    table: TokenText,
    num_top: int,
) -> TextLogprobs:
    """`offsets` count characters from the start of the choice's whole text. Of an echoed prompt the core
    tells more of the best tokens than were asked for; `num_top` stand."""
    return TextLogprobs(
        tokens=[text_name(token, table) for token in tokens],
        token_logprobs=[_finite(scored.logprob) if scored else None for scored in logprobs],
        top_logprobs=[_top_by_name(scored, table, num_top) if scored else None for scored in logprobs],
        text_offset=list(offsets),
    )


def text_name(token: int, table: TokenText) -> str:
    """A token's text; one that is no whole character is spelled `bytes:\\xf0\\x9f`, as OpenAI does, so that
    two such tokens stay apart."""
    data = table.shown(token)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _top_by_name(scored: TokenLogprob, table: TokenText, num_top: int) -> dict[str, float]:
    """The best tokens, and always the chosen one, even if it isn't among them."""
    pairs = [*scored.top[:num_top], (scored.token, scored.logprob)]
    return {text_name(token, table): _finite(value) for token, value in pairs}


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)
