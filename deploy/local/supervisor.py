"""Keeps the platform's processes running, and ends them all in order within a fixed time."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType

from deploy.local.children import Child

FIRST_BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 30.0
HEALTHY_AFTER_S = 60.0  # a process that lived this long starts over with the first backoff
STAGES_END_S = (4.5, 6.5, 8.5)  # when each stage has ended or is killed; the promise to the user is 10 s
WATCH_S = 0.2


class StopRequested(KeyboardInterrupt):
    """Ctrl-C or SIGTERM. A KeyboardInterrupt, so that event loops and waits let it through."""


class StartFailed(RuntimeError):
    """A process ended before it was ready; the message is one line."""


@dataclass
class Service:
    """One supervised process. `start` makes it anew; `stage` orders the end: 0 ends first."""

    name: str
    start: Callable[[], Child]
    stage: int
    child: Child | None = None
    backoff_s: float = FIRST_BACKOFF_S
    started_at: float = 0.0
    restart_at: float | None = None  # monotonic seconds; set while it is down
    num_restarts: int = 0


@dataclass
class Supervisor:
    say: Callable[[str], None]
    services: list[Service] = field(default_factory=list)

    def start(self, service: Service) -> None:
        self.services.append(service)
        self._start(service)

    def adopt(self, service: Service) -> None:
        """Take over a process that runs already."""
        service.started_at = time.monotonic()
        self.services.append(service)

    def children(self, prefix: str) -> list[Child]:
        """The running processes whose names begin so, in the order of their start."""
        found = [service.child for service in self.services if service.name.startswith(prefix)]
        return [child for child in found if child is not None and child.returncode is None]

    def wait_until(self, ready: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait for `ready`. Raises `StartFailed` when a process dies meanwhile, or after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            for service in self.services:
                self._must_live(service)
            if time.monotonic() > deadline:
                raise StartFailed(f"{what} was not ready within {timeout_s:.0f} s")
            time.sleep(WATCH_S)

    def watch(self, every_round: Callable[[], None]) -> None:
        """Restart what dies, until `StopRequested` is raised into it."""
        while True:
            for service in self.services:
                self._tend(service, time.monotonic())
            every_round()
            time.sleep(WATCH_S)

    def stop(self) -> None:
        """Ask stage after stage to end; what remains at the end of its time is killed, group by group."""
        began = time.monotonic()
        for stage, end_s in enumerate(STAGES_END_S):
            living = [service.child for service in self.services if service.stage == stage and service.child]
            _stop_together(living, began + end_s)

    def _start(self, service: Service) -> None:
        service.child = service.start()
        service.started_at = time.monotonic()
        service.restart_at = None

    def _must_live(self, service: Service) -> None:
        child = service.child
        if child is not None and child.returncode is not None:
            raise StartFailed(
                f"{service.name} {_how_it_ended(child)}; see {child.spec.log}: {child.last_words(1)}"
            )

    def _tend(self, service: Service, now: float) -> None:
        child = service.child
        if child is not None and child.returncode is not None and service.restart_at is None:
            child.kill()  # what it left behind in its group
            if now - service.started_at > HEALTHY_AFTER_S:
                service.backoff_s = FIRST_BACKOFF_S
            service.restart_at = now + service.backoff_s
            self.say(f"{service.name} {_how_it_ended(child)}; again in {service.backoff_s:.0f} s")
            service.backoff_s = min(2 * service.backoff_s, LONGEST_BACKOFF_S)
        elif service.restart_at is not None and now >= service.restart_at:
            self._restart(service)

    def _restart(self, service: Service) -> None:
        service.num_restarts += 1
        try:
            self._start(service)
        except (RuntimeError, OSError) as error:
            service.restart_at = time.monotonic() + service.backoff_s
            service.backoff_s = min(2 * service.backoff_s, LONGEST_BACKOFF_S)
            self.say(f"{service.name} did not start ({error}); again in {service.backoff_s:.0f} s")
        else:
            assert service.child is not None
            self.say(f"{service.name} runs again (pid {service.child.pid})")


def raise_on_signals() -> None:
    """The first SIGINT, SIGTERM or SIGHUP raises `StopRequested`; later ones are ignored."""

    def first(number: int, _frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        raise StopRequested(signal.Signals(number).name)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, first)


def _stop_together(children: Sequence[Child], deadline: float) -> None:
    for child in children:
        child.ask_to_stop()
    for child in children:
        child.wait_or_kill(deadline)


def _how_it_ended(child: Child) -> str:
    code = child.returncode
    assert code is not None
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
