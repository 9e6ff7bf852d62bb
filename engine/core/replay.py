"""Recording what a runner is told, and telling it to a runner again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from engine.core.plan import (
    PENDING_TOKEN,
    AdapterSource,
    LoadedAdapter,
    PendingStep,
    Row,
    RowResult,
    Runner,
    StepPlan,
)
from engine.core.protocol import AdapterRef
from engine.core.trace import Cleared, Installed, TraceEntry, TraceWriter


@dataclass(frozen=True, slots=True)
class NamedHandle:
    """A handle that says whose it is, so that a recorded runner knows."""

    adapter: AdapterRef
    handle: object


class NamingSource:
    """An adapter source for a recorded runner."""

    def __init__(self, source: AdapterSource) -> None:
        self._source = source

    def load(self, adapter: AdapterRef, *, fetch: bool) -> LoadedAdapter:
        loaded = self._source.load(adapter, fetch=fetch)
        return replace(loaded, handle=NamedHandle(adapter, loaded.handle))

    def is_near(self, adapter: AdapterRef) -> bool:
        return self._source.is_near(adapter)

    def forget(self, adapter: AdapterRef) -> None:
        self._source.forget(adapter)


class RecordedRunner:
    """Writes down everything that a runner is told, in order."""

    def __init__(self, runner: Runner, writer: TraceWriter) -> None:
        self._runner = runner
        self._writer = writer

    @property
    def max_in_flight(self) -> int:
        return self._runner.max_in_flight

    def submit(self, plan: StepPlan) -> PendingStep:
        self._writer.write(plan)
        return self._runner.submit(plan)

    def install(self, slot: int, adapter: object) -> None:
        assert isinstance(adapter, NamedHandle)
        self._writer.write(Installed(slot, adapter.adapter))
        self._runner.install(slot, adapter.handle)

    def clear(self, slot: int) -> None:
        self._writer.write(Cleared(slot))
        self._runner.clear(slot)


def replay(
    entries: Iterable[TraceEntry], runner: Runner, handle_of: Callable[[AdapterRef], object]
) -> list[list[RowResult]]:
    """The results of each step of a trace, on a runner whose slots are empty. It need not take as many steps
    at a time as the recorded one: where the step before has ended, tokens that were pending are filled in
    from its results, and slots change only when no step is under way."""
    results: list[list[RowResult]] = []
    in_flight: deque[PendingStep] = deque()

    def wait_for_all_but(count: int) -> None:
        while len(in_flight) > count:
            results.append(in_flight.popleft().wait())

    for entry in entries:
        match entry:
            case StepPlan():
                plan = entry if in_flight else filled_in(entry, results[-1] if results else [])
                in_flight.append(runner.submit(plan))
                wait_for_all_but(runner.max_in_flight - 1)
            case Installed():
                wait_for_all_but(0)
                runner.install(entry.slot, handle_of(entry.adapter))
            case Cleared():
                wait_for_all_but(0)
                runner.clear(entry.slot)
    wait_for_all_but(0)
    return results


def filled_in(plan: StepPlan, before: list[RowResult]) -> StepPlan:
    """The plan with pending tokens known, from the results of the step before it."""
    tokens = {result.sequence: result.token for result in before}
    return replace(plan, rows=[_known(row, tokens.get(row.sequence)) for row in plan.rows])


def _known(row: Row, token: int | None) -> Row:
    if PENDING_TOKEN not in row.tokens:
        return row
    return replace(row, tokens=(token if token is not None else 0,))  # 0: that row failed, and so will this
