from __future__ import annotations

import time

import pytest

from adapters.refusal import RequestRefused
from adapters.wire import decode_chat


@pytest.mark.parametrize("name", [b"x", b" - at `$", b"`", b"\\n"])
def test_a_field_name_as_long_as_the_body_is_refused_cheaply_and_cut(name: bytes) -> None:
    body = b'{"' + name * (4_000_000 // len(name)) + b'": 1}'
    began = time.process_time()
    with pytest.raises(RequestRefused) as refused:
        decode_chat(body)
    assert time.process_time() - began < 1.0  # nothing but the decoding grows with it
    assert len(refused.value.message) < 1_000
    assert len(refused.value.param or "") < 1_000


def test_a_usual_name_is_told_whole() -> None:
    with pytest.raises(RequestRefused) as refused:
        decode_chat(b'{"model": "a", "messages": [{"role": "user", "content": "b", "weight": 1}]}')
    assert refused.value.param == "messages[0].weight"
    assert refused.value.code == "unknown_parameter"
