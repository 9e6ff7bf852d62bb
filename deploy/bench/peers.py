"""Who is measured beside us: OpenAI-compatible servers by URL, and a PEFT process of our own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from deploy.bench.load import Endpoint

READY_S = 300.0


async def open_peer(name: str, url: str) -> Endpoint:
    """The server at `url` (which ends in /v1); its base is the first model it lists."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/models") as reply:
        reply.raise_for_status()
        models = (await reply.json())["data"]
    return Endpoint(name, url.rstrip("/"), str(models[0]["id"]))


class PeftPeer:
    """A static batch of 16 rows in another process (`deploy/bench/peft_peer.py`)."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    async def rate(self, rows: str) -> float:
        """Generated tokens a second of one batch; `rows`: base or mixed."""
        self._stdin.write(f"{rows}\n".encode())
        await self._stdin.drain()
        told = json.loads(await self._stdout.readline())
        return float(told["tokens"]) / float(told["seconds"])

    async def ready(self) -> None:
        line = await asyncio.wait_for(self._stdout.readline(), READY_S)
        if line.strip() != b"ready":
            raise RuntimeError("the PEFT peer did not start")


@asynccontextmanager
async def peft_peer(model: Path, adapters: Sequence[Path]) -> AsyncIterator[PeftPeer]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "deploy.bench.peft_peer",
        str(model),
        *(str(folder) for folder in adapters),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        peer = PeftPeer(process)
        await peer.ready()
        yield peer
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
