"""The local socket between engine server and engine core: a pair of ZeroMQ sockets over `ipc://`.

The server binds and starts the core; the core connects. One msgpack message carries a list of frames. Both
directions are bounded: a full socket makes the server's `send` wait, and makes the core hold frames and merge
the tokens of each choice into one frame until there is room again.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Sequence
from typing import Final

import msgspec
import zmq
from zmq.utils.monitor import parse_monitor_message

from engine.core.backlog import Backlog
from engine.core.protocol import FromCore, ToCore

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""The socket is closed on whoever sends a larger one."""
MAX_QUEUED_MESSAGES: Final = 64
"""Messages a socket queues before it is full, each way and each end."""
MAX_BATCH: Final = 1_024
"""Held frames in one message."""
MAX_HELD_FRAMES: Final = 65_536
"""Frames the core holds for a server that doesn't read; past it the server counts as dead."""
RETRY_MS: Final = 50
"""Held frames are tried again at least this often, and at once when the socket has room."""

_TO_CORE = msgspec.msgpack.Decoder(list[ToCore])
_FROM_CORE = msgspec.msgpack.Decoder(list[FromCore])
_ENCODER = msgspec.msgpack.Encoder()


class PeerGone(Exception):
    """The process at the other end of the socket has gone (or no longer reads)."""


class CoreTransport:
    """The core's end. All methods but `wake` belong to the step thread. None blocks but `wait`."""

    def __init__(self, address: str, *, parent_pid: int | None = None) -> None:
        """`address` is `ipc://<path>`; `parent_pid` is the server's, checked while waiting."""
        self._parent_pid = parent_pid
        self._context = zmq.Context()
        self._socket = _configured(self._context.socket(zmq.PAIR))
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._held: Backlog[FromCore] = Backlog()
        self._socket.connect(address)

    def recv_all(self) -> list[ToCore]:
        """Every frame that has arrived, without waiting. Raises `PeerGone`."""
        self._check_peer()
        frames: list[ToCore] = []
        while True:
            try:
                message = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return frames
            frames.extend(_TO_CORE.decode(message))

    def wait(self, timeout_s: float) -> None:
        """Returns once a frame or a `wake` has come, or the time has passed. Raises `PeerGone`."""
        self.flush()
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN | (zmq.POLLOUT if self._held else 0))
        poller.register(self._monitor, zmq.POLLIN)
        poller.register(self._wake_read, zmq.POLLIN)
        limit_ms = math.ceil(timeout_s * 1000)
        if self._held:
            limit_ms = min(limit_ms, RETRY_MS)
        ready = dict(poller.poll(limit_ms))
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        self._check_peer()
        self.flush()

    def send(self, frames: Sequence[FromCore]) -> None:
        """Hands frames to the server, in order. Raises `PeerGone` when it hasn't read for too long."""
        if frames and not self._held:
            data = _ENCODER.encode(frames)
            if len(data) <= MAX_MESSAGE_BYTES and self._try_send(data):
                return
        for frame in frames:
            self._held.add(frame)
        if len(self._held) > MAX_HELD_FRAMES:
            raise PeerGone(f"The engine server left {MAX_HELD_FRAMES} frames unread.")
        self.flush()

    def flush(self) -> None:
        """Sends what is held, as far as the socket has room."""
        while self._held and self._socket.poll(0, zmq.POLLOUT):
            count, data = self._batch()
            if not self._try_send(data):
                return
            self._held.drop(count)

    def wake(self) -> None:
        """Ends a `wait`; may be called from any thread."""
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            return  # the pipe is full of wake-ups already

    def close(self, linger_ms: int = 2_000) -> None:
        """Gives held frames, and then those already sent, `linger_ms` each to leave, then closes."""
        if self._held and self._socket.poll(linger_ms, zmq.POLLOUT):
            self.flush()
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(linger_ms)
        self._context.term()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _batch(self) -> tuple[int, bytes]:
        """As many held frames as fit in one message, and the message."""
        count = min(MAX_BATCH, len(self._held))
        while len(data := _ENCODER.encode(self._held.frames(count))) > MAX_MESSAGE_BYTES and count > 1:
            count //= 2
        assert len(data) <= MAX_MESSAGE_BYTES, "a frame fits in a message"
        return count, data

    def _try_send(self, data: bytes) -> bool:
        try:
            self._socket.send(data, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def _check_peer(self) -> None:
        if self._parent_pid is not None and os.getppid() != self._parent_pid:
            raise PeerGone("The engine server's process has gone.")
        if self._monitor.poll(0):
            event = parse_monitor_message(self._monitor.recv_multipart())
            raise PeerGone(f"The engine server closed its socket ({event['event']!r}).")


class ServerTransport:
    """The server's end, for the event loop in which it is built. Binds at construction; a core connects
    later.

    ZeroMQ signals by a file descriptor that something may have happened, which the loop watches; any call may
    take the signal, so each looks at what is there afterwards.
    """

    def __init__(self, address: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._socket = _configured(self._context.socket(zmq.PAIR))
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._socket.bind(address)
        self._readers: list[asyncio.Future[None]] = []
        self._writers: list[asyncio.Future[None]] = []
        self._is_gone = False
        self._loop.add_reader(_signal_of(self._socket), self._look)
        self._loop.add_reader(_signal_of(self._monitor), self._look_at_monitor)
        self._look_at_monitor()  # a signal comes only once somebody has looked

    async def send(self, *frames: ToCore) -> None:
        """Sends frames in order, as one message if they fit; waits while the core's queue is full or no core
        is there."""
        data = _ENCODER.encode(frames)
        if len(data) > MAX_MESSAGE_BYTES and len(frames) > 1:
            middle = len(frames) // 2
            await self.send(*frames[:middle])
            await self.send(*frames[middle:])
            return
        while True:
            try:
                self._socket.send(data, zmq.NOBLOCK)
            except zmq.Again:
                await self._one_of(self._writers)
            else:
                self._look()
                return

    async def recv(self) -> list[FromCore]:
        """The next frames, never none: of all messages that are there, so that a server that is behind
        catches up in one go. Raises `PeerGone` once a core that was there has left and all that it sent was
        returned."""
        await asyncio.sleep(0)  # whoever waits for the frames before gets a turn
        while True:
            if frames := self._read():
                return frames
            if not self._is_gone:
                await self._one_of(self._readers)
                continue
            await asyncio.sleep(RETRY_MS / 1000)  # what was still on its way
            if frames := self._read():
                return frames
            raise PeerGone("The engine core closed its socket.")

    def close(self) -> None:
        """Closes without waiting for unsent frames."""
        self._loop.remove_reader(_signal_of(self._socket))
        self._loop.remove_reader(_signal_of(self._monitor))
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)
        self._context.term()

    def _read(self) -> list[FromCore]:
        frames: list[FromCore] = []
        for _ in range(MAX_QUEUED_MESSAGES):
            try:
                frames.extend(_FROM_CORE.decode(self._socket.recv(zmq.NOBLOCK)))
            except zmq.Again:
                break
        return frames

    async def _one_of(self, waiters: list[asyncio.Future[None]]) -> None:
        waiter = self._loop.create_future()
        waiters.append(waiter)
        self._look()
        await waiter

    def _look(self) -> None:
        events = self._socket.get(zmq.EVENTS)
        assert isinstance(events, int)
        if events & zmq.POLLIN:
            _let_go(self._readers)
        if events & zmq.POLLOUT:
            _let_go(self._writers)

    def _look_at_monitor(self) -> None:
        while self._monitor.poll(0):
            self._monitor.recv_multipart()
            self._is_gone = True
            _let_go(self._readers)


def _signal_of(socket: zmq.Socket[bytes]) -> int:
    number = socket.get(zmq.FD)
    assert isinstance(number, int)
    return number


def _let_go(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()


def _configured(socket: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
    socket.set(zmq.SNDHWM, MAX_QUEUED_MESSAGES)
    socket.set(zmq.RCVHWM, MAX_QUEUED_MESSAGES)
    socket.set(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
    socket.set(zmq.LINGER, 0)
    return socket
