"""Step plans as bytes: what a trace file holds, and what ranks of a parallel runner are sent.

`encode` and `decode` are pure. A decoded plan computes the same bits as its original, and leaves out what has
no effect: the tokens so far of rows without penalties, of which only the number counts.

A trace file is a header, then for each entry four bytes of length (little-endian) and that many of msgpack.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from engine.core.plan import Row, SamplePlan, StepPlan
from engine.core.protocol import AdapterRef, Sampling

log = logging.getLogger(__name__)

HEADER: Final = b"motet-trace-1\n"
MAX_ENTRY_BYTES: Final = 64 * 1024 * 1024
"""A plan is far smaller; a file that says otherwise is none of ours."""

_LENGTH: Final = struct.Struct("<I")


class Installed(msgspec.Struct, frozen=True, array_like=True, tag="install"):
    """An adapter was put into a slot. All plans after it, and none before, see it there."""

    slot: int
    adapter: AdapterRef


class Cleared(msgspec.Struct, frozen=True, array_like=True, tag="clear"):
    """A slot was emptied."""

    slot: int


TraceEntry = StepPlan | Installed | Cleared


class TraceUnreadable(Exception):
    """The bytes are no entry, or the file no trace of this version."""


class _Sample(msgspec.Struct, frozen=True, array_like=True):
    sampling: Sampling
    choice: int
    prompt: tuple[int, ...]
    generated: tuple[int, ...]
    banned: tuple[int, ...]
    unlisted: int


class _Row(msgspec.Struct, frozen=True, array_like=True):
    sequence: int
    tokens: tuple[int, ...]
    start: int
    block_table: tuple[int, ...]
    slot: int
    prompt_logprobs: bool
    sample: _Sample | None


class _Step(msgspec.Struct, frozen=True, array_like=True, tag="step"):
    step: int
    slot_epoch: int
    rows: tuple[_Row, ...]


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[_Step | Installed | Cleared] = msgspec.msgpack.Decoder(
    _Step | Installed | Cleared
)


def encode(entry: TraceEntry) -> bytes:
    """Reads the plan's lists at once, and keeps none of them."""
    if isinstance(entry, StepPlan):
        return _ENCODER.encode(_Step(entry.step, entry.slot_epoch, tuple(map(_row, entry.rows))))
    return _ENCODER.encode(entry)


def decode(data: bytes) -> TraceEntry:
    """Raises `TraceUnreadable`."""
    try:
        entry = _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise TraceUnreadable(str(error)) from error
    if isinstance(entry, _Step):
        return StepPlan(entry.step, tuple(map(_plan_row, entry.rows)), entry.slot_epoch)
    return entry


class TraceWriter:
    """Appends entries to a file until it would be larger than `max_bytes`; then it says so, once, and the
    trace ends. Raises `OSError` only while it is opened."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._room = max_bytes - len(HEADER)
        self._file: BinaryIO | None = path.open("wb", buffering=1 << 20)
        self._file.write(HEADER)

    def write(self, entry: TraceEntry) -> None:
        if self._file is None:
            return
        data = encode(entry)
        self._room -= _LENGTH.size + len(data)
        if self._room < 0:
            self._end("it has reached its size")
            return
        try:
            self._file.write(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            self._end(str(error))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _end(self, reason: str) -> None:
        log.warning("the trace in %s ends here: %s", self._path, reason)
        try:
            self.close()
        except OSError as error:
            log.warning("the trace's last entries are lost: %s", error)
            self._file = None


def read_trace(path: Path) -> Iterator[TraceEntry]:
    """A trace's entries, in order. A last one that was cut off (by a crash) is left out. Raises
    `TraceUnreadable`."""
    with path.open("rb") as file:
        if file.read(len(HEADER)) != HEADER:
            raise TraceUnreadable(f"{path} is no trace of this version")
        while len(prefix := file.read(_LENGTH.size)) == _LENGTH.size:
            (length,) = _LENGTH.unpack(prefix)
            if length > MAX_ENTRY_BYTES:
                raise TraceUnreadable(f"an entry of {length} bytes")
            data = file.read(length)
            if len(data) < length:
                return
            yield decode(data)


def _row(row: Row) -> _Row:
    sample = row.sample
    return _Row(
        row.sequence,
        tuple(row.tokens),
        row.start,
        tuple(row.block_table),
        row.slot,
        row.prompt_logprobs,
        None if sample is None else _sample(sample),
    )


def _sample(plan: SamplePlan) -> _Sample:
    if plan.sampling.has_penalties:
        listed = (tuple(plan.prompt), tuple(plan.generated), plan.banned, plan.unlisted)
    else:
        listed = ((), (), plan.banned, plan.counter)
    return _Sample(plan.sampling, plan.choice, *listed)


def _plan_row(row: _Row) -> Row:
    found = row.sample
    sample = None
    if found is not None:
        sample = SamplePlan(
            found.sampling, found.choice, found.prompt, found.generated, found.banned, found.unlisted
        )
    return Row(row.sequence, row.tokens, row.start, row.block_table, row.slot, sample, row.prompt_logprobs)
