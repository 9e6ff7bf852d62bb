"""The core as a child process: started with its settings, watched, and stopped with the server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import structlog

from engine.config import CoreSettings

log = structlog.get_logger("engine.server")

SPIN_COUNT = "10000"
"""How long an OpenMP thread spins at a barrier before it sleeps. The runtime's own default is so long that a
step takes several times its time as soon as anything else wants the cores; this is as fast on idle ones."""


class CoreChild:
    """One core process. It leaves by itself when this process dies (it watches its parent)."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, settings: CoreSettings) -> CoreChild:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "engine.core_process",
            settings.model_dump_json(),
            env={"GOMP_SPINCOUNT": SPIN_COUNT, **os.environ},
            stdin=asyncio.subprocess.DEVNULL,
            # a Ctrl-C in the terminal reaches the server alone, which then drains the core
            start_new_session=True,
        )
        log.info("core_started", pid=process.pid)
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> str:
        """Waits for the end; how it came, in words."""
        code = await self._process.wait()
        if code < 0:
            return f"The engine core was killed by {signal.Signals(-code).name}."
        return f"The engine core exited with status {code}."

    def kill(self) -> None:
        """At once; `wait` tells of it."""
        if self._process.returncode is None:
            self._process.kill()

    async def stop(self, grace_s: float) -> None:
        """Lets a drained core leave for `grace_s`, then ends it."""
        if self._process.returncode is not None:
            return
        try:
            await asyncio.wait_for(self._process.wait(), grace_s)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
