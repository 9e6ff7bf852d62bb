"""What a core tells of its steps."""

from __future__ import annotations

from collections.abc import Callable

from engine.core.protocol import Stats
from engine.core.step_figures import StepFigures, StepState
from tests.engine.core.fakes import Ask, Bench, add


def test_a_window_ends_with_each_report_and_totals_do_not() -> None:
    figures = StepFigures()
    figures.note_step(rows=4, tokens=10, adapters=2, run_s=0.010)
    figures.note_step(rows=2, tokens=2, adapters=1, run_s=0.030)
    figures.note_turn(0.001)
    figures.note_turn(0.002)
    assert figures.take() == StepState(2, 3.0, 6.0, 1.5, 20.0, 30.0, 1.5, 2.0)
    assert figures.take() == StepState()
    assert (round(figures.run_s_total, 6), round(figures.host_s_total, 6)) == (0.04, 0.003)


def test_stats_tell_how_full_the_steps_were_and_what_waits(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(max_running=2, step_tokens=20)
    for number, adapter in enumerate(("a", "b", None, "c")):
        bench.send(add(str(number), [number + 1] * 20, Ask(adapter=adapter, tenant=f"t{number % 2}")))
    for _ in range(6):
        bench.step()
    before = bench.stats()
    assert before.queue.running == before.running == 2
    assert before.queue.waiting_tokens == before.waiting_tokens > 0
    assert {one.tenant for one in before.queue.tenants} == {"t0", "t1"}
    assert before.blocks_free + before.blocks_used + before.blocks_cached == before.blocks_total
    assert before.adapters.host.residents == len(before.host)
    bench.run()
    told = [frame.steps for frame in bench.transport.sent if isinstance(frame, Stats)]
    bench.stats()
    assert sum(window.steps for window in told) <= bench.stats().steps_total
    assert max(window.rows for window in told) <= 2
    assert max(window.adapters for window in told) > 0
