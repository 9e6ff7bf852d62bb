"""Tensor parallelism: the core's process computes one part of the model, others of its host the rest.

Rank 0 is the core. What it is told (plans, slots) it writes to the other ranks' standard inputs as frames,
and they do the same with their parts; within a step all meet in `Group`. Every rank samples, from the same
logits by the same rule, so nothing has to be sent back, and a token is known where the next step needs it.

A rank whose input ends leaves. One that fails takes the step of all others with it: a collective that lacks a
member raises, the core fails, and the replica with it.
"""

from __future__ import annotations

import struct
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

import msgspec
import torch
from torch import Tensor

from engine.core.plan import PendingStep, Runner, StepPlan
from engine.core.trace import decode, encode
from engine.kernels.lora import HostAdapter, KernelAdapter, prepare
from engine.model.group import Group
from engine.model.sharding import AdapterPart, Shard, shard_adapter

READY: Final = b"ready\n"
MEET: Final = b"meet\n"
STOP_S: Final = 10.0
LOOK_S: Final = 0.5
_LENGTH: Final = struct.Struct("<I")
_DTYPES: Final = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
_NAMES: Final = {dtype: name for name, dtype in _DTYPES.items()}


class RankLost(Exception):
    """A process of the group has gone, and no step can be computed without it."""


class ModulePlace(msgspec.Struct, frozen=True):
    """One module of an adapter among its bytes: A, then B."""

    layer: int
    site: str
    rank: int
    inputs: int
    outputs: int
    scale: float
    dtype: str  # a key of _DTYPES


class Execute(msgspec.Struct, frozen=True, tag=True):
    plan: bytes


class Install(msgspec.Struct, frozen=True, tag=True):
    """The bytes follow through `Group.share`."""

    slot: int
    modules: list[ModulePlace]
    num_bytes: int


class Clear(msgspec.Struct, frozen=True, tag=True):
    slot: int


Frame = Execute | Install | Clear
_decoder: Final = msgspec.msgpack.Decoder(Frame)


@dataclass(frozen=True)
class SharedAdapter:
    """An adapter as rank 0 holds it: whole, to be shared, and its own part for the kernels."""

    modules: list[ModulePlace]
    whole: Tensor  # uint8
    part: KernelAdapter

    @property
    def num_bytes(self) -> int:
        return self.whole.nbytes + self.part.num_bytes


def prepare_shared(adapter: HostAdapter, shard: Shard) -> SharedAdapter:
    """Called from loader threads."""
    modules, pieces = [], []
    for (layer, site), (a, b, scale) in adapter.modules.items():
        dtype = torch.promote_types(a.dtype, b.dtype)  # which holds both exactly
        modules.append(ModulePlace(layer, site, a.shape[0], a.shape[1], b.shape[0], scale, _NAMES[dtype]))
        pieces += [_bytes(a.to(dtype)), _bytes(b.to(dtype))]
    part = prepare(shard_adapter(AdapterPart(adapter.modules), shard))
    return SharedAdapter(modules, torch.cat(pieces), part)


class Ranks:
    """The other processes, from rank 0's side."""

    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        """Each command calls `await_all` and then `follow` on its standard input."""
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - our own
            for command in commands
        ]
        self._next_look = 0.0

    def wait_ready(self) -> None:
        """Until all have loaded their parts, and then lets them meet. Raises `RankLost` when one leaves
        instead."""
        for rank, process in enumerate(self._processes, 1):
            assert process.stdout is not None
            if process.stdout.readline() != READY:
                raise RankLost(f"rank {rank} did not start; its log says why")
        self._write(MEET)

    def send(self, frame: Frame) -> None:
        """Raises `RankLost`."""
        data = msgspec.msgpack.encode(frame)
        self._write(_LENGTH.pack(len(data)) + data)

    def check(self) -> None:
        """Raises `RankLost` when one has ended. Cheap: it looks once in `LOOK_S`."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_S
        for rank, process in enumerate(self._processes, 1):
            if process.poll() is not None:
                raise RankLost(f"rank {rank} has gone")

    def _write(self, data: bytes) -> None:
        for rank, process in enumerate(self._processes, 1):
            assert process.stdin is not None
            try:
                process.stdin.write(data)
                process.stdin.flush()
            except BrokenPipeError as error:
                raise RankLost(f"rank {rank} has gone") from error

    def close(self) -> None:
        """Ends their inputs, and those who don't leave then."""
        for process in self._processes:
            assert process.stdin is not None
            try:
                process.stdin.close()
            except BrokenPipeError:
                continue  # it has gone already
        for process in self._processes:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()


class ParallelRunner:
    """`engine.core.plan.Runner` of rank 0."""

    def __init__(self, local: Runner, group: Group, ranks: Ranks) -> None:
        self._local = local
        self._group = group
        self._ranks = ranks

    @property
    def max_in_flight(self) -> int:
        """Each turn of the loop asks, idle ones too: so a rank that has ended is noticed before a request
        needs it. Raises `RankLost`."""
        self._ranks.check()
        return self._local.max_in_flight

    def submit(self, plan: StepPlan) -> PendingStep:
        self._ranks.send(Execute(encode(plan)))
        return self._local.submit(plan)

    def install(self, slot: int, adapter: object) -> None:
        """`adapter`: a `SharedAdapter`."""
        assert isinstance(adapter, SharedAdapter)
        self._ranks.send(Install(slot, adapter.modules, adapter.whole.nbytes))
        self._group.share(adapter.whole)
        self._local.install(slot, adapter.part)

    def clear(self, slot: int) -> None:
        self._ranks.send(Clear(slot))
        self._local.clear(slot)


def await_all(output: BinaryIO, frames: BinaryIO) -> bool:
    """Tells rank 0 that this rank has loaded its part, and waits until all have, so that none waits long in
    `Group.connect`, which gives up. False when rank 0 has left instead."""
    output.write(READY)
    output.flush()
    return frames.read(len(MEET)) == MEET


def follow(local: Runner, group: Group, frames: BinaryIO) -> None:
    """What a rank does until rank 0 closes `frames`. It runs as far ahead as rank 0 does, which touches a
    slot only once no step under way uses it."""
    pending: list[PendingStep] = []
    while (frame := _read(frames)) is not None:
        match frame:
            case Execute(plan):
                step = decode(plan)
                assert isinstance(step, StepPlan)
                while len(pending) >= local.max_in_flight:
                    pending.pop(0).wait()
                pending.append(local.submit(step))
            case Install(slot, modules, num_bytes):
                _wait_for(pending)
                whole = torch.empty(num_bytes, dtype=torch.uint8)
                group.share(whole)
                local.install(slot, prepare(shard_adapter(_unpack(modules, whole), group.shard)))
            case Clear(slot):
                _wait_for(pending)
                local.clear(slot)
            case _:
                raise AssertionError(f"no such frame: {frame!r}")


def _wait_for(pending: list[PendingStep]) -> None:
    while pending:
        pending.pop(0).wait()


def _read(frames: BinaryIO) -> Frame | None:
    head = frames.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    data = frames.read(_LENGTH.unpack(head)[0])
    return _decoder.decode(data)


def _unpack(modules: Sequence[ModulePlace], whole: Tensor) -> AdapterPart:
    found: dict[tuple[int, str], tuple[Tensor, Tensor, float]] = {}
    at = 0
    for module in modules:
        dtype = _DTYPES[module.dtype]
        factors = []
        for rows, columns in ((module.rank, module.inputs), (module.outputs, module.rank)):
            size = rows * columns * dtype.itemsize
            # a copy of its own: where it lies among the bytes may suit no float
            factors.append(whole[at : at + size].clone().view(dtype).view(rows, columns))
            at += size
        found[module.layer, module.site] = (factors[0], factors[1], module.scale)
    assert at == whole.nbytes, "the places cover the bytes"
    return AdapterPart(found)


def _bytes(factor: Tensor) -> Tensor:
    return factor.contiguous().view(torch.uint8).flatten()
