"""Parts of the check, each in a process of its own with a deadline: whatever one does to the device or to
itself, the others go on."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from tests.gpu.scale import Scale


@dataclass(frozen=True)
class Table:
    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass
class Found:
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Section:
    name: str
    work: Callable[[Scale], Found]
    limit_s: float
    alone: bool  # it measures: nothing runs beside it


@dataclass(frozen=True)
class Outcome:
    section: Section
    found: Found
    took_s: float


def run_all(sections: Sequence[Section], scale: Scale, limit_s: float, abreast: int) -> list[Outcome]:
    """First those that may run side by side, `abreast` at once, then one after the other. What `limit_s`
    leaves no time for is said to have failed."""
    deadline = time.monotonic() + limit_s
    together = [section for section in sections if not section.alone]
    outcomes = _run(together, scale, deadline, abreast)
    for section in sections:
        if section.alone:
            outcomes += _run([section], scale, deadline, 1)
    return outcomes


class _Running:
    """`multiprocessing` forks: torch is imported once, and no process before has touched the device."""

    def __init__(self, section: Section, scale: Scale, deadline: float) -> None:
        context = multiprocessing.get_context("fork")
        self.section = section
        self.answers, theirs = context.Pipe(duplex=False)
        self.began = time.monotonic()
        self.ends = min(deadline, self.began + section.limit_s)
        self._process: BaseProcess = context.Process(target=_work, args=(section, scale, theirs))
        self._process.start()
        theirs.close()

    def outcome(self) -> Outcome:
        """Ends the process."""
        try:
            found = self.answers.recv() if self.answers.poll() else Found(failures=[self._late()])
        except EOFError:
            self._process.join()
            found = Found(failures=[f"its process ended with {self._process.exitcode}"])
        self._process.kill()
        self._process.join()
        return Outcome(self.section, found, time.monotonic() - self.began)

    def _late(self) -> str:
        return f"not done after {self.ends - self.began:.0f} s"


def _run(sections: Sequence[Section], scale: Scale, deadline: float, abreast: int) -> list[Outcome]:
    waiting, running, outcomes = list(sections), list[_Running](), list[Outcome]()
    while waiting or running:
        while waiting and len(running) < abreast:
            running.append(_Running(waiting.pop(0), scale, deadline))
        soonest = max(0.0, min(one.ends for one in running) - time.monotonic())
        ready = wait([one.answers for one in running], timeout=soonest)
        for one in list(running):
            if one.answers in ready or time.monotonic() >= one.ends:
                running.remove(one)
                outcomes.append(one.outcome())
    return outcomes


def _work(section: Section, scale: Scale, answers: Connection) -> None:
    try:
        found = section.work(scale)
    except BaseException:
        found = Found(failures=[traceback.format_exc()])
    answers.send(found)
    answers.close()
