"""The OpenAI-compatible requests that Motet takes: decoded by the gateway to refuse, count and route, and by
the engine to run. Unknown fields are refused by name, and every field here has an effect (docs/API.md).

They live here because gateway and engine may share no code but `adapters/` (docs/decisions/0003).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeVar, Union

import msgspec
from msgspec import UNSET, Meta, UnsetType

from adapters.refusal import RequestRefused, refusal_of

MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_MESSAGES = 2_048
MAX_CHOICES = 8
MAX_TOP_LOGPROBS = 20
MAX_STOPS = 16
MAX_STOP_CHARS = 256
MAX_MODEL_CHARS = 192
MAX_METADATA_PAIRS = 16
MAX_LOGIT_BIAS = 1_024
MAX_PROMPT_ITEMS = 1024 * 1024  # token ids; more than a context has, less than a body holds
DEFAULT_MAX_TOKENS = 1_024
"""What an absent `max_tokens` means for a base that names no other."""

Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
Stop = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_TOKEN_KEY = re.compile("0|[1-9][0-9]{0,8}")  # one spelling for each id, so that no two keys mean the same


class _Wire(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class TextPart(_Wire, frozen=True, kw_only=True, tag_field="type", tag="text"):
    text: str


class Message(_Wire, frozen=True, kw_only=True):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType = UNSET

    @property
    def text(self) -> str:
        """The content as one string; text parts are joined as they stand."""
        return self.content if isinstance(self.content, str) else "".join(p.text for p in self.content)


class StreamOptions(_Wire, frozen=True, kw_only=True):
    include_usage: bool = False


class TextFormat(_Wire, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """The only response format served so far; others are refused by name."""


class _Generate(_Wire, frozen=True, kw_only=True):
    """What both endpoints share."""

    model: Annotated[str, Meta(min_length=1, max_length=MAX_MODEL_CHARS)]
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None  # -1 and 0 = off, as in vLLM
    min_p: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=MAX_STOPS)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0.0, le=10.0)] | None = None
    logit_bias: (
        Annotated[dict[str, Annotated[float, Meta(ge=-100.0, le=100.0)]], Meta(max_length=MAX_LOGIT_BIAS)]
        | None
    ) = None
    min_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    ignore_eos: bool | None = None
    return_token_ids: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: Annotated[str, Meta(max_length=512)] | None = None

    @property
    def num_choices(self) -> int:
        return self.n or 1

    @property
    def stops(self) -> list[str]:
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else list(self.stop)

    @property
    def streaming(self) -> bool:
        return bool(self.stream)

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def token_limit(self) -> int | None:
        """The most tokens each choice may have, as asked; None = the base's default."""
        return self.max_tokens

    def _check(self) -> None:
        if self.stream_options is not None and not self.streaming:
            raise RequestRefused(
                "'stream_options' is only allowed when 'stream' is true.", "stream_options", "invalid_value"
            )
        for token in self.logit_bias or {}:
            if not _TOKEN_KEY.fullmatch(token):
                raise RequestRefused(
                    f"Invalid key in 'logit_bias': {token[:32]!r}. Keys are token ids.",
                    "logit_bias",
                    "invalid_value",
                )


class ChatRequest(_Generate, frozen=True, kw_only=True):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    metadata: (
        Annotated[
            dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
            Meta(max_length=MAX_METADATA_PAIRS),
        ]
        | None
    ) = None
    response_format: TextFormat | None = None

    @property
    def token_limit(self) -> int | None:
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def num_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    def check(self) -> None:
        """Raises `RequestRefused` for what types alone can't say."""
        self._check()
        if self.max_tokens is not None and self.max_completion_tokens not in (None, self.max_tokens):
            raise RequestRefused(
                "'max_tokens' and 'max_completion_tokens' are both set and differ; set one.",
                "max_completion_tokens",
                "invalid_value",
            )
        if self.top_logprobs is not None and not self.logprobs:
            raise RequestRefused(
                "'top_logprobs' is only allowed when 'logprobs' is true.", "top_logprobs", "invalid_value"
            )


class CompletionRequest(_Generate, frozen=True, kw_only=True):
    """`POST /v1/completions`. One prompt a request: as text or as token ids."""

    prompt: str | Annotated[list[str | TokenId], Meta(max_length=MAX_PROMPT_ITEMS)]
    logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    echo: bool | None = None

    @property
    def num_logprobs(self) -> int | None:
        return self.logprobs

    @property
    def text_prompt(self) -> str | None:
        """The prompt as text, or None when it was given as token ids."""
        if isinstance(self.prompt, str):
            return self.prompt
        return self.prompt[0] if self.prompt and isinstance(self.prompt[0], str) else None

    @property
    def token_prompt(self) -> list[int]:
        """The prompt as token ids; only when `text_prompt` is None."""
        assert self.text_prompt is None
        return [t for t in self.prompt if isinstance(t, int)]

    def check(self) -> None:
        """Raises `RequestRefused` for what types alone can't say."""
        self._check()
        if len(self.prompt) == 0 or self.text_prompt == "":
            raise RequestRefused("'prompt' must not be empty.", "prompt", "empty_value")
        if isinstance(self.prompt, list) and len({type(item) for item in self.prompt}) > 1:
            raise RequestRefused("'prompt' mixes text and token ids.", "prompt", "invalid_type")
        if isinstance(self.prompt, list) and isinstance(self.prompt[0], str) and len(self.prompt) > 1:
            raise RequestRefused(
                "'prompt' holds more than one prompt; send one request for each.",
                "prompt",
                "array_above_max_length",
            )


InferenceRequest = Union[ChatRequest, CompletionRequest]  # noqa: UP007
R = TypeVar("R", ChatRequest, CompletionRequest)

_CHAT = msgspec.json.Decoder(ChatRequest)
_COMPLETION = msgspec.json.Decoder(CompletionRequest)


def decode_chat(body: bytes) -> ChatRequest:
    """Decodes and checks a chat request; raises `RequestRefused`."""
    return _decode(_CHAT, body)


def decode_completion(body: bytes) -> CompletionRequest:
    """Decodes and checks a text completion request; raises `RequestRefused`."""
    return _decode(_COMPLETION, body)


def _decode(decoder: msgspec.json.Decoder[R], body: bytes) -> R:
    try:
        request = decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise refusal_of(error) from None
    request.check()
    return request
