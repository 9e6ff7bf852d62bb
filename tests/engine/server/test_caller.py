"""Headers are the gateway's word, and still read as a stranger's: what is malformed is refused by name."""

from __future__ import annotations

import pytest

from engine.server.caller import MAX_NUMBER, read_caller
from engine.server.errors import EngineError

TOO_LONG = b"00000000001" + b"9" * 60


@pytest.mark.parametrize(
    "value", [b"0", b"-1", b"+1", b"1.0", b" 1", b"", b"2147483648", TOO_LONG, "\u0661".encode()]
)
@pytest.mark.parametrize("header", [b"x-motet-attempt", b"x-motet-deadline-ms", b"x-motet-max-tokens"])
def test_numbers_out_of_range_are_refused(header: bytes, value: bytes) -> None:
    with pytest.raises(EngineError) as refused:
        read_caller([(header, value)])
    assert (refused.value.status, refused.value.param) == (400, header.decode())


def test_numbers_in_range_are_taken() -> None:
    caller = read_caller([(b"x-motet-attempt", b"3"), (b"x-motet-deadline-ms", b"2147483647")])
    assert (caller.attempt, caller.deadline_ms, caller.max_tokens) == (3, MAX_NUMBER, None)
