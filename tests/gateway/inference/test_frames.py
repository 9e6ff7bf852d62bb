from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.inference.frames import (
    MAX_FRAME_BYTES,
    FrameScanner,
    FrameTooLong,
    read_trailer,
    sort_frames,
    split_frames,
)

TRAILER = {
    "usage": {"prompt": 3, "completion": 2, "cached": 0},
    "timings": {"queue_ms": 1.0, "load_ms": 0.0, "ttft_ms": None, "total_ms": 2.0},
    "tier": "base",
    "outcome": "finished",
    "reason": "",
}
FRAMES = [
    'data: {"choices":[{"delta":{"content":"世界 [DONE] : motet "}}]}',
    ": comment",
    'data: {"a":"\\"error\\""}',
    "event: x\ndata: {}",
    "data: [DONE]",
    ": motet " + json.dumps(TRAILER),
]


def stream(newline: str) -> bytes:
    return "".join(frame.replace("\n", newline) + newline * 2 for frame in FRAMES).encode()


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@given(cuts=st.lists(st.integers(1, 40), max_size=60))
def test_any_split_gives_the_same_bytes_and_the_same_end(newline: str, cuts: list[int]) -> None:
    data = stream(newline)
    scanner, through, done, trailer, position = FrameScanner(), b"", b"", None, 0
    for size in [*cuts, len(data)]:
        sorted_ = sort_frames(scanner.feed(data[position : position + size]))
        position += size
        through += sorted_.through
        done += sorted_.done
        trailer = trailer or sorted_.trailer
        assert not sorted_.has_error
    if newline == "\r":  # a lone CR at the very end may be half of a CRLF: it waits for the end of the stream
        rest = sort_frames(scanner.rest)
        trailer = trailer or rest.trailer
    assert through == data[: data.index(b"data: [DONE]")]
    assert done.strip() == b"data: [DONE]"
    assert trailer is not None
    assert trailer.usage.completion == 2


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@given(st.lists(st.sampled_from([*FRAMES, 'data: {"error":{"message":"no"}}', 'data: {"choices":[]}'])))
def test_a_block_is_sorted_as_its_frames_are_one_by_one(newline: str, frames: list[str]) -> None:
    block = "".join(frame.replace("\n", newline) + newline * 2 for frame in frames).encode()
    alone = [sort_frames(frame) for frame in split_frames(block)]
    sorted_ = sort_frames(block)
    assert sorted_.through == b"".join(one.through for one in alone)
    assert sorted_.done == b"".join(one.done for one in alone)
    assert sorted_.has_error == any(one.has_error for one in alone)
    assert (sorted_.trailer is None) == all(one.trailer is None for one in alone)


def test_one_byte_a_chunk() -> None:
    data = stream("\r\n")
    scanner = FrameScanner()
    blocks = [block for i in range(len(data)) if (block := scanner.feed(data[i : i + 1]))]
    assert b"".join(blocks) == data
    assert len(split_frames(data)) == len(FRAMES)


def test_errors_are_seen_and_passed_on() -> None:
    frame = b'data: {"error":{"message":"no"}}\n\n'
    sorted_ = sort_frames(frame)
    assert sorted_.has_error
    assert sorted_.through == frame


def test_a_frame_without_end_is_refused() -> None:
    scanner = FrameScanner()
    scanner.feed(b"x" * MAX_FRAME_BYTES)
    with pytest.raises(FrameTooLong):
        scanner.feed(b"x")


@pytest.mark.parametrize(
    "part",
    [
        {"usage": {"prompt": -3, "completion": 2, "cached": 0}},
        {"usage": {"prompt": 2**63, "completion": 2, "cached": 0}},
        {"timings": {"total_ms": 1e300}},
        {"outcome": "finished\0"},
        {"tier": "\0"},
    ],
)
def test_a_trailer_that_the_ledger_can_not_hold_is_none(part: dict[str, object]) -> None:
    assert read_trailer(json.dumps(TRAILER)) is not None
    assert read_trailer(json.dumps(TRAILER | part)) is None
