"""Each bad body and the error it gets: message, param and code are part of the API (docs/API.md)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from adapters import wire
from adapters.refusal import RequestRefused
from adapters.wire import decode_chat, decode_completion

HI = [{"role": "user", "content": "hi"}]
UNREADABLE = "The body could not be parsed as JSON in UTF-8."


def refusal(decode: Any, body: bytes | dict[str, Any]) -> tuple[str, str | None, str | None]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(RequestRefused) as refused:
        decode(raw)
    assert refused.value.status == 400
    return refused.value.message, refused.value.param, refused.value.code


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        (b"", UNREADABLE, None),
        (b"{", UNREADABLE, None),
        (b'{"model": "m", "messages": [{"role": "user", "content": ""}]} {}', UNREADABLE, None),
        (b'{"model": "\xff"}', UNREADABLE, None),
        (b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}', UNREADABLE, None),
        (b'{"model": "m", "temperature": NaN}', UNREADABLE, None),
        (
            b'{"model": "m", "temperature": 1e999}',
            "Invalid 'temperature': number out of range.",
            "invalid_value",
        ),
        (b'{"model":' * 100_000, "Invalid 'model': expected str, got object.", "invalid_type"),
        (b"[]", "Invalid 'body': expected object, got array.", "invalid_type"),
        (b"null", "Invalid 'body': expected object, got null.", "invalid_type"),
    ],
)
def test_bodies_that_are_no_request(body: bytes, message: str, code: str | None) -> None:
    said, _, said_code = refusal(decode_chat, body)
    assert (said, said_code) == (message, code)


CHAT = [
    # missing and unknown
    ({"model": ...}, "Missing required parameter: 'model'.", "model", "missing_required_parameter"),
    ({"messages": ...}, "Missing required parameter: 'messages'.", "messages", "missing_required_parameter"),
    ({"foo": 1}, "Unknown parameter: 'foo'.", "foo", "unknown_parameter"),
    ({"tools": []}, "Unknown parameter: 'tools'.", "tools", "unknown_parameter"),
    (
        {"stream": True, "stream_options": {"x": 1}},
        "Unknown parameter: 'stream_options.x'.",
        "stream_options.x",
        "unknown_parameter",
    ),
    # types
    ({"model": 5}, "Invalid 'model': expected str, got int.", "model", "invalid_type"),
    ({"n": "1"}, "Invalid 'n': expected int | null, got str.", "n", "invalid_type"),
    ({"n": True}, "Invalid 'n': expected int | null, got bool.", "n", "invalid_type"),
    ({"n": 1.5}, "Invalid 'n': expected int | null, got float.", "n", "invalid_type"),
    ({"stop": [1]}, "Invalid 'stop[0]': expected str, got int.", "stop[0]", "invalid_type"),
    ({"metadata": {"a": 1}}, "Invalid 'metadata': expected str, got int.", "metadata", "invalid_type"),
    # bounds
    ({"model": ""}, "Invalid 'model': expected str of length >= 1.", "model", "string_below_min_length"),
    (
        {"model": "x" * 193},
        "Invalid 'model': expected str of length <= 192.",
        "model",
        "string_above_max_length",
    ),
    ({"n": 0}, "Invalid 'n': expected int >= 1.", "n", "integer_below_min_value"),
    ({"n": 9}, "Invalid 'n': expected int <= 8.", "n", "integer_above_max_value"),
    (
        {"temperature": -1},
        "Invalid 'temperature': expected float >= 0.0.",
        "temperature",
        "decimal_below_min_value",
    ),
    (
        {"temperature": 2.1},
        "Invalid 'temperature': expected float <= 2.0.",
        "temperature",
        "decimal_above_max_value",
    ),
    ({"top_p": 0}, "Invalid 'top_p': expected float > 0.0.", "top_p", "decimal_below_min_value"),
    ({"min_p": 2}, "Invalid 'min_p': expected float <= 1.0.", "min_p", "decimal_above_max_value"),
    ({"top_k": -2}, "Invalid 'top_k': expected int >= -1.", "top_k", "integer_below_min_value"),
    (
        {"presence_penalty": 3},
        "Invalid 'presence_penalty': expected float <= 2.0.",
        "presence_penalty",
        "decimal_above_max_value",
    ),
    (
        {"repetition_penalty": 0},
        "Invalid 'repetition_penalty': expected float > 0.0.",
        "repetition_penalty",
        "decimal_below_min_value",
    ),
    ({"max_tokens": 0}, "Invalid 'max_tokens': expected int >= 1.", "max_tokens", "integer_below_min_value"),
    (
        {"max_tokens": 2**70},
        "Invalid 'max_tokens': expected int <= 2147483647.",
        "max_tokens",
        "integer_above_max_value",
    ),
    ({"min_tokens": -1}, "Invalid 'min_tokens': expected int >= 0.", "min_tokens", "integer_below_min_value"),
    (
        {"seed": 2**63},
        "Invalid 'seed': expected int <= 9223372036854775807.",
        "seed",
        "integer_above_max_value",
    ),
    ({"stop": ""}, "Invalid 'stop': expected str of length >= 1.", "stop", "string_below_min_length"),
    (
        {"stop": ["a"] * 17},
        "Invalid 'stop': expected array of length <= 16.",
        "stop",
        "array_above_max_length",
    ),
    (
        {"stop_token_ids": [-1]},
        "Invalid 'stop_token_ids[0]': expected int >= 0.",
        "stop_token_ids[0]",
        "integer_below_min_value",
    ),
    (
        {"logit_bias": {"1": 101}},
        "Invalid 'logit_bias': expected float <= 100.0.",
        "logit_bias",
        "decimal_above_max_value",
    ),
    (
        {"logit_bias": {str(i): 1 for i in range(1025)}},
        "Invalid 'logit_bias': expected object of length <= 1024.",
        "logit_bias",
        "object_above_max_properties",
    ),
    (
        {"metadata": {str(i): "" for i in range(17)}},
        "Invalid 'metadata': expected object of length <= 16.",
        "metadata",
        "object_above_max_properties",
    ),
    (
        {"metadata": {"k" * 65: ""}},
        "Invalid 'metadata': expected str of length <= 64.",
        "metadata",
        "string_above_max_length",
    ),
    (
        {"user": "u" * 513},
        "Invalid 'user': expected str of length <= 512.",
        "user",
        "string_above_max_length",
    ),
    (
        {"logprobs": True, "top_logprobs": 21},
        "Invalid 'top_logprobs': expected int <= 20.",
        "top_logprobs",
        "integer_above_max_value",
    ),
    # messages
    ({"messages": []}, "Invalid 'messages': expected array of length >= 1.", "messages", "empty_array"),
    (
        {"messages": HI * 2049},
        "Invalid 'messages': expected array of length <= 2048.",
        "messages",
        "array_above_max_length",
    ),
    ({"messages": "hi"}, "Invalid 'messages': expected array, got str.", "messages", "invalid_type"),
    (
        {"messages": [{"role": "user"}]},
        "Missing required parameter: 'messages[0].content'.",
        "messages[0].content",
        "missing_required_parameter",
    ),
    (
        {"messages": [*HI, {"role": "tool", "content": ""}]},
        "Invalid 'messages[1].role': invalid enum value 'tool'.",
        "messages[1].role",
        "invalid_value",
    ),
    (
        {"messages": [{"role": "user", "content": None}]},
        "Invalid 'messages[0].content': expected str | array, got null.",
        "messages[0].content",
        "invalid_type",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "Invalid 'messages[0].content[0].type': invalid value 'image_url'.",
        "messages[0].content[0].type",
        "invalid_value",
    ),
    # fields that contradict each other
    (
        {"stream_options": {"include_usage": True}},
        "'stream_options' is only allowed when 'stream' is true.",
        "stream_options",
        "invalid_value",
    ),
    (
        {"top_logprobs": 3},
        "'top_logprobs' is only allowed when 'logprobs' is true.",
        "top_logprobs",
        "invalid_value",
    ),
    (
        {"max_tokens": 1, "max_completion_tokens": 2},
        "'max_tokens' and 'max_completion_tokens' are both set and differ; set one.",
        "max_completion_tokens",
        "invalid_value",
    ),
    (
        {"logit_bias": {"a": 1}},
        "Invalid key in 'logit_bias': 'a'. Keys are token ids.",
        "logit_bias",
        "invalid_value",
    ),
    (
        {"logit_bias": {"07": 1}},
        "Invalid key in 'logit_bias': '07'. Keys are token ids.",
        "logit_bias",
        "invalid_value",
    ),
    (
        {"response_format": {"type": "json_object"}},
        "Invalid 'response_format.type': invalid value 'json_object'.",
        "response_format.type",
        "invalid_value",
    ),
]


@pytest.mark.parametrize(("change", "message", "param", "code"), CHAT)
def test_chat_bodies(change: dict[str, Any], message: str, param: str, code: str) -> None:
    body = {"model": "m", "messages": HI, **change}
    body = {key: value for key, value in body.items() if value is not ...}
    assert refusal(decode_chat, body) == (message, param, code)


@pytest.mark.parametrize(
    ("change", "message", "param", "code"),
    [
        ({}, "Missing required parameter: 'prompt'.", "prompt", "missing_required_parameter"),
        ({"prompt": ""}, "'prompt' must not be empty.", "prompt", "empty_value"),
        ({"prompt": []}, "'prompt' must not be empty.", "prompt", "empty_value"),
        ({"prompt": [""]}, "'prompt' must not be empty.", "prompt", "empty_value"),
        ({"prompt": None}, "Invalid 'prompt': expected str | array, got null.", "prompt", "invalid_type"),
        (
            {"prompt": [[1]]},
            "Invalid 'prompt[0]': expected int | str, got array.",
            "prompt[0]",
            "invalid_type",
        ),
        ({"prompt": [-1]}, "Invalid 'prompt[0]': expected int >= 0.", "prompt[0]", "integer_below_min_value"),
        ({"prompt": ["a", 1]}, "'prompt' mixes text and token ids.", "prompt", "invalid_type"),
        (
            {"prompt": [1] * (1024 * 1024 + 1)},
            "Invalid 'prompt': expected array of length <= 1048576.",
            "prompt",
            "array_above_max_length",
        ),
        (
            {"prompt": ["a", "b"]},
            "'prompt' holds more than one prompt; send one request for each.",
            "prompt",
            "array_above_max_length",
        ),
        ({"prompt": "x", "suffix": "y"}, "Unknown parameter: 'suffix'.", "suffix", "unknown_parameter"),
        ({"prompt": "x", "best_of": 2}, "Unknown parameter: 'best_of'.", "best_of", "unknown_parameter"),
        (
            {"prompt": "x", "echo": "y"},
            "Invalid 'echo': expected bool | null, got str.",
            "echo",
            "invalid_type",
        ),
        (
            {"prompt": "x", "logprobs": 21},
            "Invalid 'logprobs': expected int <= 20.",
            "logprobs",
            "integer_above_max_value",
        ),
    ],
)
def test_completion_bodies(change: dict[str, Any], message: str, param: str, code: str) -> None:
    assert refusal(decode_completion, {"model": "m", **change}) == (message, param, code)


def test_a_large_bad_body_is_refused_fast() -> None:
    body = json.dumps({"model": "m", "messages": HI * 10_000}).encode()
    took = []
    for _ in range(5):
        start = time.process_time()
        refusal(decode_chat, body)
        took.append(time.process_time() - start)
    assert min(took) < 0.05


def test_what_a_chat_request_says() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    chat = decode_chat(
        json.dumps(
            {
                "model": "m",
                "messages": [{"role": "developer", "content": parts, "name": "d"}],
                "max_completion_tokens": 7,
                "max_tokens": 7,
                "stop": "x",
                "stream": True,
                "stream_options": {"include_usage": True},
                "logprobs": True,
                "response_format": {"type": "text"},
            }
        ).encode()
    )
    assert chat.messages[0].text == "ab"
    assert (chat.token_limit, chat.num_choices, chat.stops) == (7, 1, ["x"])
    assert (chat.streaming, chat.wants_usage, chat.num_logprobs) == (True, True, 0)


def test_absent_fields() -> None:
    chat = decode_chat(json.dumps({"model": "m", "messages": HI, "n": None, "stop": None}).encode())
    assert (chat.token_limit, chat.num_choices, chat.stops) == (None, 1, [])
    assert (chat.streaming, chat.wants_usage, chat.num_logprobs) == (False, False, None)


@pytest.mark.parametrize(
    ("prompt", "text", "tokens"), [("a", "a", None), (["a"], "a", None), ([3, 4], None, [3, 4])]
)
def test_what_a_completion_request_says(prompt: Any, text: str | None, tokens: list[int] | None) -> None:
    request = decode_completion(json.dumps({"model": "m", "prompt": prompt, "logprobs": 0}).encode())
    assert request.text_prompt == text
    assert request.num_logprobs == 0
    if tokens is not None:
        assert request.token_prompt == tokens


def test_limits_are_the_documented_ones() -> None:
    assert (wire.MAX_BODY_BYTES, wire.MAX_MESSAGES, wire.MAX_CHOICES) == (8 * 1024 * 1024, 2_048, 8)
    assert (wire.MAX_TOP_LOGPROBS, wire.MAX_STOPS, wire.DEFAULT_MAX_TOKENS) == (20, 16, 1_024)
