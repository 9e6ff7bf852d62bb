"""Messages or text → token ids, counted against a limit: by the gateway to refuse and reserve, by the engine
to run.

Both must get the same ids, so both use this. Special tokens written in a message's text become special
tokens, as they do in transformers' `apply_chat_template`: a tenant can only confuse its own request with
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import jinja2
import msgspec
from tokenizers import Encoding, Tokenizer

from adapters.ascii_bpe import AsciiWords
from adapters.base import longest_token_bytes
from adapters.refusal import RequestRefused
from adapters.template import TemplateRefused, chat_template_source, compile_template, special_tokens
from adapters.token_floor import token_floor
from adapters.wire import Message

FIRST_PREFIX_CHARS_PER_TOKEN: Final = 6
"""A long text's first prefix has this many characters per allowed token: usual text is over the limit by
then."""

_PREFIX_GROWTH: Final = 2

UNLOCKED_CHARS: Final = 2_048
"""From here a text is encoded without Python's lock: a thread that does it leaves the event loop alone."""


class PromptEncoder:
    """The tokenizer and chat template of one base. Thread-safe; holds no request state."""

    def __init__(self, model_dir: str | Path) -> None:
        """Raises OSError or ValueError for a folder without a usable tokenizer."""
        folder = Path(model_dir)
        raw = (folder / "tokenizer.json").read_bytes()
        facts: dict[str, Any] = msgspec.json.decode(raw)
        self.tokenizer: Tokenizer = Tokenizer.from_buffer(raw)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.longest_token_bytes: int | None = longest_token_bytes(facts)
        self._floor = token_floor(facts)
        self._words = AsciiWords.of(facts, self.tokenizer)
        self._longest_added = max(
            (len(token["content"]) for token in facts.get("added_tokens") or []), default=0
        )
        self._special_tokens = special_tokens(folder)
        source = chat_template_source(folder)
        self._template = compile_template(source) if source is not None else None

    def encode_chat(self, messages: Sequence[Message], limit: int) -> list[int]:
        """Token ids of the conversation with the start of the assistant's answer. `developer` is rendered as
        `system`, the name under which templates know it. Raises `RequestRefused`: `context_length_exceeded`
        once past `limit`."""
        size = 0
        for message in messages:
            size += _num_bytes(message.text, "messages")
            self._check_size(size, limit, "messages")
        return self._encode(self.render(messages), limit, "messages", special=False)

    def encode_text(self, text: str, limit: int) -> list[int]:
        """Token ids of a text prompt, with what the tokenizer puts around a text (a BOS token, say). Raises
        `RequestRefused` like `encode_chat`."""
        self._check_size(_num_bytes(text, "prompt"), limit, "prompt")
        return self._encode(text, limit, "prompt", special=True)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def render(self, messages: Sequence[Message]) -> str:
        """The conversation as the text that is encoded. Raises `RequestRefused`."""
        if self._template is None:
            raise RequestRefused(
                "This model has no chat template; use /v1/completions.", "messages", "invalid_value"
            )
        try:
            return self._template.render(
                messages=[_as_template_sees(message) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=True,
                **self._special_tokens,
            )
        except (TemplateRefused, jinja2.TemplateError, TypeError, ValueError, LookupError) as error:
            raise RequestRefused(
                f"This model's chat template can't render these messages: {error}",
                "messages",
                "invalid_value",
            ) from None

    def _check_size(self, num_bytes: int, limit: int, param: str) -> None:
        """Refuses unread what must be over the limit, however it is split into tokens."""
        if self.longest_token_bytes is not None and num_bytes > limit * self.longest_token_bytes:
            _refuse_length(limit, param)

    def _encode(self, text: str, limit: int, param: str, *, special: bool) -> list[int]:
        if self._words is not None and len(text) < UNLOCKED_CHARS and len(text) <= limit:
            known = self._words.encode(text)
            if known is not None:
                return known
        length = max(1, limit) * FIRST_PREFIX_CHARS_PER_TOKEN
        if len(text) > limit and self._floor is not None and self._floor.passes(text.encode(), limit):
            _refuse_length(limit, param)
        while length * _PREFIX_GROWTH <= len(text):  # else the whole text is about as cheap
            prefix = self._tokens(text[:length], special)
            if self._num_settled(prefix, length) > limit:
                _refuse_length(limit, param)
            length *= _PREFIX_GROWTH
        ids: list[int] = self._tokens(text, special).ids
        if len(ids) > limit:
            _refuse_length(limit, param)
        return ids

    def _tokens(self, text: str, special: bool) -> Encoding:
        if len(text) < UNLOCKED_CHARS:
            return self.tokenizer.encode(text, add_special_tokens=special)
        return self.tokenizer.encode_batch([text], add_special_tokens=special)[0]  # `encode` keeps the lock

    def _num_settled(self, prefix: Encoding, length: int) -> int:
        """How many tokens of a prefix the whole text has as well: those of the words before the last one (a
        word is split into tokens by itself, and how the text goes on can only change the last), and no closer
        to the cut than an added token that the cut may have broken."""
        words, spans = prefix.word_ids, prefix.offsets
        last_word = next((word for word in reversed(words) if word is not None), None)
        border = length - self._longest_added
        settled = len(words)
        while settled and (words[settled - 1] in (None, last_word) or spans[settled - 1][1] > border):
            settled -= 1
        return settled


def _as_template_sees(message: Message) -> dict[str, str]:
    seen = {"role": "system" if message.role == "developer" else message.role, "content": message.text}
    if isinstance(message.name, str):
        seen["name"] = message.name
    return seen


def _num_bytes(text: str, param: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise RequestRefused(f"'{param}' holds half of a surrogate pair.", param, "invalid_value") from None


def _refuse_length(limit: int, param: str) -> NoReturn:
    refused = RequestRefused(
        f"This model's context has room for a prompt of at most {limit} tokens, and '{param}' is longer. "
        f"Please reduce the length of the {param}.",
        param,
        "context_length_exceeded",
    )
    refused.most = limit
    raise refused
