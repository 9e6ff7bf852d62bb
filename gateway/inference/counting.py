"""Counts a request's tokens with the engine's own encoder, inline when short, in a thread when long."""

from __future__ import annotations

import asyncio

import msgspec

from adapters.prompt import PromptEncoder
from adapters.refusal import RequestRefused
from adapters.wire import DEFAULT_MAX_TOKENS, ChatRequest, InferenceRequest
from gateway.inference.turns import Turns
from gateway.principal import TenantId
from gateway.replicas.want import prefix_chain

INLINE_BYTES = 4 * 1024
"""A body up to this size is encoded on the event loop (a millisecond or two); longer ones in a thread, which
doesn't hold Python's lock meanwhile."""

LONG_AT_ONCE = 2
"""Long prompts counted at a time in a worker, so that a crowd of them leaves the processor to others; tenants
take turns at it, for a crowd is often one tenant's."""


class Counted(msgspec.Struct, frozen=True):
    prompt_tokens: int
    max_tokens: int  # each choice's most
    by_default: bool  # the client named none
    prefix: tuple[int, ...] = ()  # hashes of the prompt's beginnings


class Counter:
    """One per worker."""

    def __init__(self, encoder: PromptEncoder, max_model_len: int, vocab_size: int) -> None:
        self._encoder = encoder
        self._max_model_len = max_model_len
        self._vocab_size = vocab_size
        self._long = Turns(LONG_AT_ONCE)

    async def count(self, request: InferenceRequest, num_bytes: int, tenant: TenantId) -> Counted:
        """Raises `RequestRefused`: too long, a token id out of the vocabulary, or a limit that can't be
        met."""
        if num_bytes <= INLINE_BYTES:
            prompt_tokens, prefix = self._prompt(request)
        else:
            async with self._long.one_of(tenant):
                prompt_tokens, prefix = await asyncio.to_thread(self._prompt, request)
        return self._counted(request, prompt_tokens, prefix)

    def _prompt(self, request: InferenceRequest) -> tuple[int, tuple[int, ...]]:
        ids = self._encoded(request)
        return len(ids), prefix_chain(ids)

    def _encoded(self, request: InferenceRequest) -> list[int]:
        limit = self._max_model_len - 1  # at least one token is generated
        if isinstance(request, ChatRequest):
            return self._encoder.encode_chat(request.messages, limit)
        text = request.text_prompt
        if text is not None:
            return self._encoder.encode_text(text, limit)
        tokens = request.token_prompt
        if any(token >= self._vocab_size for token in tokens):
            raise RequestRefused(
                f"Invalid 'prompt': token ids must be below {self._vocab_size}.", "prompt", "invalid_value"
            )
        if len(tokens) > limit:
            raise self._too_long(len(tokens), 1, "prompt")
        return tokens

    def _counted(self, request: InferenceRequest, prompt_tokens: int, prefix: tuple[int, ...]) -> Counted:
        room = self._max_model_len - prompt_tokens
        asked = request.token_limit
        param = "messages" if isinstance(request, ChatRequest) else "prompt"
        if prompt_tokens == 0:  # all of it characters that the vocabulary leaves out
            raise RequestRefused(f"'{param}' is empty once it is encoded.", param, "empty_value")
        if asked is not None and asked > room:
            raise self._too_long(prompt_tokens, asked, param)
        max_tokens = asked if asked is not None else min(DEFAULT_MAX_TOKENS, room)
        if (request.min_tokens or 0) > max_tokens:
            raise RequestRefused(
                f"'min_tokens' ({request.min_tokens}) is more than the {max_tokens} that may be generated.",
                "min_tokens",
                "integer_above_max_value",
            )
        return Counted(prompt_tokens, max_tokens, asked is None, prefix)

    def _too_long(self, prompt: int, completion: int, param: str) -> RequestRefused:
        refused = RequestRefused(
            f"This model's maximum context length is {self._max_model_len} tokens. However, you requested "
            f"{prompt + completion} tokens ({prompt} in the {param}, {completion} in the completion).",
            param,
            "context_length_exceeded",
        )
        refused.needed, refused.most = prompt + completion, self._max_model_len
        return refused
