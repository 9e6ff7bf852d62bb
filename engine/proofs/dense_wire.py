"""What the server and its dense child say to each other: msgpack, each message after its length."""

from __future__ import annotations

from typing import BinaryIO, Final

import msgspec

LENGTH_BYTES: Final = 4
MOST_BYTES: Final = 16 * 1024**2


class DenseSettings(msgspec.Struct, frozen=True):
    server_pid: int  # whose end is the child's end
    model: str  # its folder
    name: str  # public id of the base
    dtype: str  # that the replica serves in
    quantization: str
    nice: int


class DenseOrder(msgspec.Struct, frozen=True):
    path: str | None  # of the packed adapter; None = the base
    prompts: list[list[int]]
    wanted: list[list[int]]  # for each token of all prompts: whose log-probabilities after it
    shaken: bool = False  # each product moved by about what rounding moves it


class DenseAnswer(msgspec.Struct, frozen=True):
    logprobs: list[list[float]] = []  # as `wanted`
    ceiling: float = 0.0  # no number inside is larger, on whatever input (`engine.model.dense_ceiling`)
    max_rank: int = 0
    missing: bool = False  # there is no such file, or it changed while it was read
    error: str = ""


def framed(message: DenseOrder | DenseAnswer) -> bytes:
    data = msgspec.msgpack.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "little") + data


def read_order(stream: BinaryIO) -> DenseOrder | None:
    """The next one, or None once the server has closed its end."""
    head = stream.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    return msgspec.msgpack.decode(stream.read(int.from_bytes(head, "little")), type=DenseOrder)
