from __future__ import annotations

import asyncio
import fcntl
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gateway.ids import uuid7
from gateway.usage.event import UsageEvent, decode_lines, encode_line
from gateway.usage.journal import Journal, JournalFailed


def make_event(**more: Any) -> UsageEvent:
    fields: dict[str, Any] = {
        "request_id": uuid7(),
        "attempt": 1,
        "tenant_id": uuid4(),
        "key_id": "k1",
        "base_id": "base",
        "outcome": "finished",
        "created_at": datetime.now(UTC),
        "ended_at": datetime.now(UTC),
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "billed_prompt_tokens": 3,
        "billed_completion_tokens": 4,
    }
    return UsageEvent(**{**fields, **more})


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


async def test_many_appends_share_syncs_and_all_are_on_disk(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    events = [make_event() for _ in range(500)]
    await asyncio.gather(*(journal.append(event) for event in events))
    (segment,) = journal.rotate()
    read, torn = decode_lines(segment.path.read_bytes())
    assert (read, torn) == (events, 0)
    journal.forget(segment)
    await journal.close()
    assert segments(tmp_path) == []


async def test_segments_are_locked_while_their_worker_lives(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    await journal.append(make_event())
    (path,) = segments(tmp_path)
    with path.open("rb") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    await journal.close()
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert decode_lines(other.read())[1] == 0


async def test_rotation_under_load_loses_no_line(tmp_path: Path) -> None:
    journal, read = Journal(tmp_path), list[UsageEvent]()

    async def drain() -> None:
        for _ in range(40):
            for segment in journal.rotate():
                read.extend(decode_lines(segment.path.read_bytes())[0])
                journal.forget(segment)
            await asyncio.sleep(0.001)

    events = [make_event() for _ in range(300)]

    async def write() -> None:
        for start in range(0, 300, 10):
            await asyncio.gather(*(journal.append(e) for e in events[start : start + 10]))

    await asyncio.gather(drain(), write())
    for segment in journal.rotate():
        read.extend(decode_lines(segment.path.read_bytes())[0])
        journal.forget(segment)
    await journal.close()
    assert sorted(e.request_id for e in read) == sorted(e.request_id for e in events)


def test_a_torn_tail_is_told_apart_from_whole_lines() -> None:
    whole, torn = make_event(), make_event()
    data = encode_line(whole) + encode_line(torn)[:-10]
    events, num_torn = decode_lines(data)
    assert events == [whole]
    assert num_torn == len(encode_line(torn)) - 10


async def test_a_disk_that_refuses_is_said(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    await journal.append(make_event())
    read_only = os.open(segments(tmp_path)[0], os.O_RDONLY)
    os.dup2(read_only, journal._segment.fd)
    os.close(read_only)
    with pytest.raises(JournalFailed):
        await journal.append(make_event())
    await journal.close()
