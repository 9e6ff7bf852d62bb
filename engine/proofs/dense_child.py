"""The dense child from the server's side: started when a proof needs it, ended when none has for a while."""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec
import structlog

from engine.config import EngineSettings
from engine.proofs.dense_wire import (
    LENGTH_BYTES,
    MOST_BYTES,
    DenseAnswer,
    DenseOrder,
    DenseSettings,
    framed,
)

IDLE_S = 120.0

log = structlog.get_logger("engine.server")


class DenseLost(Exception):
    """The child ended, or answered nothing that can be read."""


class DenseChild:
    """One order at a time. One that is cancelled ends the child, so that it computes for nobody."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = DenseSettings(
            server_pid=os.getpid(),
            model=str(settings.model),
            name=settings.base_name,
            dtype=settings.dtype,
            quantization=settings.quantization,
            nice=settings.proof_nice,
        )
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._idle: asyncio.TimerHandle | None = None

    async def answer(self, order: DenseOrder) -> DenseAnswer:
        """Raises `DenseLost`."""
        async with self._turn:
            self._keep_awake()
            try:
                answer = await self._ask(await self._running(), order)
            except BaseException:
                self._end()
                raise
            self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end)
            return answer

    async def close(self) -> None:
        self._keep_awake()
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    async def _ask(self, process: asyncio.subprocess.Process, order: DenseOrder) -> DenseAnswer:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(framed(order))
            await process.stdin.drain()
            size = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES), "little")
            if size > MOST_BYTES:
                raise DenseLost(f"its answer has {size} bytes")
            return msgspec.msgpack.decode(await process.stdout.readexactly(size), type=DenseAnswer)
        except (OSError, EOFError, msgspec.MsgspecError) as error:
            raise DenseLost(f"{type(error).__name__}: {error}") from error

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "engine.dense_process",
                msgspec.json.encode(self._settings).decode(),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=MOST_BYTES,
                start_new_session=True,
            )
            log.info("dense_child_started", pid=self._process.pid)
        return self._process

    def _keep_awake(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
