"""A request's body and headers to the frame the core runs, and to the shape of its answer."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from adapters import wire as requests
from adapters.prompt import PromptEncoder
from adapters.wire import ChatRequest, CompletionRequest, InferenceRequest
from engine.core.protocol import AddRequest, Ready, Sampling
from engine.server.answer import Answer, AnswerShape, ChatAnswer, TextAnswer
from engine.server.caller import Caller
from engine.server.errors import EngineError, bad_request
from engine.server.token_text import TokenText
from engine.server.transcript import ChoiceEnds, Shape, Transcript

SEED_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that serving a request needs."""

    add: AddRequest
    streaming: bool
    transcript: Transcript
    ends: ChoiceEnds | None  # of a request with stop strings
    answer: Answer


class Intake:
    """What a client sent to `Prepared`. Raises `EngineError` or `RequestRefused`: both are the client's."""

    def __init__(self, encoder: PromptEncoder, table: TokenText, inline_bytes: int) -> None:
        self.encoder = encoder
        self._table = table
        self._inline_bytes = inline_bytes

    async def chat(self, body: bytes, caller: Caller, core: Ready) -> Prepared:
        request = requests.decode_chat(body)
        limit = core.max_model_len - 1  # at least one token is generated
        if len(body) <= self._inline_bytes:
            prompt = self.encoder.encode_chat(request.messages, limit)
        else:
            prompt = await asyncio.to_thread(self.encoder.encode_chat, request.messages, limit)
        shape = self._answer_shape(request, caller, core, prompt)
        text = _text_shape(request, prompt)
        return Prepared(
            add=_frame(request, caller, core, prompt),
            streaming=request.streaming,
            transcript=Transcript(text, self._table),
            ends=self._ends(text),
            answer=ChatAnswer(shape, self._table),
        )

    async def completion(self, body: bytes, caller: Caller, core: Ready) -> Prepared:
        request = requests.decode_completion(body)
        prompt = await self._completion_prompt(request, core)
        text = _text_shape(request, prompt, self._echo_text(request, prompt))
        shape = self._answer_shape(request, caller, core, prompt)
        return Prepared(
            add=_frame(request, caller, core, prompt),
            streaming=request.streaming,
            transcript=Transcript(text, self._table),
            ends=self._ends(text),
            answer=TextAnswer(shape, self._table),
        )

    async def _completion_prompt(self, request: CompletionRequest, core: Ready) -> list[int]:
        limit = core.max_model_len - 1
        text = request.text_prompt
        if text is None:
            prompt = request.token_prompt
            _check_ids(prompt, "prompt", core.vocab_size)
            if len(prompt) > limit:
                raise _too_long(core, len(prompt), 1, "prompt")
            return prompt
        if len(text) <= self._inline_bytes:
            return self.encoder.encode_text(text, limit)
        return await asyncio.to_thread(self.encoder.encode_text, text, limit)

    def _echo_text(self, request: CompletionRequest, prompt: Sequence[int]) -> str | None:
        if not request.echo:
            return None
        text = request.text_prompt
        if text is not None:
            return text
        return b"".join(map(self._table.text, prompt)).decode("utf-8", "replace")

    def _ends(self, text: Shape) -> ChoiceEnds | None:
        return ChoiceEnds(text, self._table) if text.stops else None

    def _answer_shape(
        self, request: InferenceRequest, caller: Caller, core: Ready, prompt: list[int]
    ) -> AnswerShape:
        return AnswerShape(
            request=caller.request,
            model=request.model,
            fingerprint=f"fp_{core.base_digest[:16]}",
            num_choices=request.num_choices,
            prompt=prompt,
            with_usage=request.wants_usage,
            with_token_ids=bool(request.return_token_ids),
            num_logprobs=request.num_logprobs,
        )


def _text_shape(request: InferenceRequest, prompt: list[int], echo: str | None = None) -> Shape:
    return Shape(
        num_choices=request.num_choices,
        stops=tuple(request.stops),
        min_tokens=request.min_tokens or 0,
        prompt=prompt,
        echo=echo,
        prompt_logprobs=echo is not None and request.num_logprobs is not None,
    )


def _frame(request: InferenceRequest, caller: Caller, core: Ready, prompt: list[int]) -> AddRequest:
    if not prompt:
        raise bad_request("The prompt is empty once encoded.", _prompt_field(request), "empty_value")
    return AddRequest(
        request=caller.request,
        attempt=caller.attempt,
        tenant=caller.tenant,
        key=caller.key,
        adapter=caller.adapter,
        version=caller.version,
        salt=caller.salt,
        prompt=prompt,
        sampling=_sampling(request, caller, core, len(prompt)),
        num_choices=request.num_choices,
        purpose=caller.purpose,
        service_class=caller.service_class,
        deadline_ms=caller.deadline_ms,
        confirm_choices=bool(request.stops),
    )


def _sampling(request: InferenceRequest, caller: Caller, core: Ready, num_prompt: int) -> Sampling:
    max_tokens = _max_tokens(request, caller, core, num_prompt)
    min_tokens = request.min_tokens or 0
    if min_tokens > max_tokens:
        raise bad_request(
            f"'min_tokens' ({min_tokens}) is more than the {max_tokens} tokens that may be generated.",
            "min_tokens",
            "integer_above_max_value",
        )
    stop_ids = request.stop_token_ids or []
    _check_ids(stop_ids, "stop_token_ids", core.vocab_size)
    logit_bias = {int(token): bias for token, bias in (request.logit_bias or {}).items()}
    _check_ids(logit_bias, "logit_bias", core.vocab_size)
    echo = isinstance(request, CompletionRequest) and bool(request.echo)
    return Sampling(
        max_tokens=max_tokens,
        seed=_seed(request.seed),
        temperature=_or(request.temperature, 1.0),
        top_p=_or(request.top_p, 1.0),
        top_k=max(0, request.top_k or 0),
        min_p=_or(request.min_p, 0.0),
        presence_penalty=_or(request.presence_penalty, 0.0),
        frequency_penalty=_or(request.frequency_penalty, 0.0),
        repetition_penalty=_or(request.repetition_penalty, 1.0),
        logit_bias=logit_bias,
        min_tokens=min_tokens,
        stop_token_ids=tuple(dict.fromkeys(stop_ids)),
        ignore_eos=bool(request.ignore_eos),
        logprobs=request.num_logprobs,
        prompt_logprobs=echo and request.num_logprobs is not None,
    )


def _max_tokens(request: InferenceRequest, caller: Caller, core: Ready, num_prompt: int) -> int:
    """An explicit limit must fit the context; the default takes what is left of it. The gateway's cap only
    ever lowers either."""
    room = core.max_model_len - num_prompt
    asked = request.token_limit
    if asked is not None and asked > room:
        raise _too_long(core, num_prompt, asked, _prompt_field(request))
    most = asked if asked is not None else min(requests.DEFAULT_MAX_TOKENS, room)
    return most if caller.max_tokens is None else min(most, caller.max_tokens)


def _too_long(core: Ready, num_prompt: int, num_asked: int, param: str) -> EngineError:
    return bad_request(
        f"This model's maximum context length is {core.max_model_len} tokens. However, you requested "
        f"{num_prompt + num_asked} tokens ({num_prompt} in the {param}, {num_asked} in the completion).",
        param,
        "context_length_exceeded",
    )


def _prompt_field(request: InferenceRequest) -> str:
    return "messages" if isinstance(request, ChatRequest) else "prompt"


def _check_ids(tokens: Iterable[int], param: str, vocab_size: int) -> None:
    for token in tokens:
        if token >= vocab_size:
            raise bad_request(
                f"Invalid '{param}': token id {token} is not in the vocabulary of {vocab_size}.",
                param,
                "invalid_value",
            )


def _seed(seed: int | None) -> int:
    return secrets.randbits(64) if seed is None else seed & SEED_MASK


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
