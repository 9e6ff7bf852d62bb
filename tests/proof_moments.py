"""Moments within a replica's proof, caught as they come: which replica proves, and that it is still at it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import psutil

from tests.machine import Machine
from tests.s3_proxy import Fault, Proxy

CAUGHT_S = 120.0
LOOK_S = 0.005
PROMPTS_AT_A_TIME = 4
"""Of an upload's acceptance; a replica's own checks have at most three requests at a time."""


class Missed(Exception):
    """The proof went by without the moment."""


@dataclass
class LoadCatch:
    """Does `strike` in the middle of a load: at its request number `first` to the store, before it is passed
    on, or with `after` when the store has served it."""

    machine: Machine
    proxy: Proxy
    strike: Callable[[psutil.Process], None]
    failure: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def arm(self, first: int, *, after: bool) -> None:
        if after:
            self.proxy.begin(Fault(first, 1, method="GET", after=self._hit))
        else:
            self.proxy.begin(Fault(first, 1, method="GET", before=self._hit))

    async def until_done(self) -> None:
        """Raises `Missed`, and what failed."""
        if not await asyncio.to_thread(self.done.wait, CAUGHT_S):
            raise Missed("no load came")
        if self.failure is not None:
            raise self.failure

    def _hit(self) -> None:
        """In the proxy's thread."""
        try:
            self.strike(replica_of(self.machine, _process_with_port(self.proxy.asker)))
        except BaseException as failure:  # for who waits
            self.failure = failure
        finally:
            self.done.set()


async def held_in_dense_check(machine: Machine) -> psutil.Process:
    """The dense child that computes, stopped: until it goes on, its proof can't end. Raises `Missed`."""
    used: dict[int, float] = {}
    until = time.monotonic() + CAUGHT_S
    while time.monotonic() < until:
        for child in machine.all("engine.dense_process"):
            try:
                times = child.cpu_times()
                now_s = times.user + times.system
                if now_s > used.setdefault(child.pid, now_s):
                    child.suspend()
                    return child
            except psutil.Error:
                continue  # it ended
        await asyncio.sleep(LOOK_S)
    raise Missed("no dense child computed")


@contextmanager
def going_on(child: psutil.Process) -> Iterator[None]:
    """What is stopped goes on after the block, if it is still there."""
    try:
        yield
    finally:
        if child.is_running():
            child.resume()


async def replica_with_prompts(machine: Machine) -> psutil.Process:
    """The replica that computes acceptance prompts. Raises `Missed`."""
    until = time.monotonic() + CAUGHT_S
    replicas = machine.demo["engines"]
    async with httpx.AsyncClient(timeout=10) as client:
        while time.monotonic() < until:
            for replica in replicas:
                headers = {"authorization": f"Bearer {replica['token']}"}
                try:
                    state = await client.get(
                        f"{replica['url']}/internal/state", params={"once": 1}, headers=headers
                    )
                except httpx.HTTPError:
                    continue
                if state.json()["open_requests"] >= PROMPTS_AT_A_TIME:
                    return replica_of(machine, _process_with_port(httpx.URL(replica["url"]).port or 0))
            await asyncio.sleep(LOOK_S)
    raise Missed("no acceptance prompts came")


def replicas_of(machine: Machine) -> dict[int, int]:
    """The core's process of each replica by its server's."""
    return {replica_of(machine, core).pid: core.pid for core in machine.cores()}


def replica_of(machine: Machine, process: psutil.Process) -> psutil.Process:
    """The server of the replica that the process is part of."""
    while (parent := process.parent()) is not None and parent.pid != machine.platform.pid:
        process = parent
    assert parent is not None, "it is no part of the platform"
    return process


def core_of(machine: Machine, server: psutil.Process) -> psutil.Process:
    return next(core for core in machine.cores() if replica_of(machine, core).pid == server.pid)


def _process_with_port(port: int) -> psutil.Process:
    """Whose own end of a connection it is, or who listens on it."""
    found = [each for each in psutil.net_connections("tcp") if each.laddr and each.laddr.port == port]
    pids = {each.pid for each in found if each.pid is not None and each.status in ("ESTABLISHED", "LISTEN")}
    ours = sorted(pids)
    assert ours, f"no process has port {port}"
    return psutil.Process(ours[0])
