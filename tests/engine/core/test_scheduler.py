"""Any order of arrivals, aborts, stops and pressure: everyone gets the model's tokens, one end and the right
count."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.core.protocol import Abort, AddRequest, Outcome, Sampling, ServiceClass, StopChoice
from tests.engine.core.fakes import Ask, Bench, add, expected

ADAPTERS = [None, "a", "b", "c"]

prompts = st.one_of(
    st.integers(1, 40).map(lambda length: [1 + i % 7 for i in range(length)]),  # share prefixes
    st.lists(st.integers(1, 3), min_size=1, max_size=12),
)

asks = st.builds(
    lambda adapter, tokens, choices, tenant, service_class, ignore_eos: Ask(
        adapter=adapter,
        choices=choices,
        tenant=tenant,
        service_class=service_class,
        sampling=Sampling(max_tokens=tokens, seed=1, temperature=0.0, ignore_eos=ignore_eos),
    ),
    st.sampled_from(ADAPTERS),
    st.integers(1, 25),
    st.integers(1, 3),
    st.sampled_from(["t", "u"]),
    st.sampled_from(list(ServiceClass)),
    st.booleans(),
)


class CoreUse(RuleBasedStateMachine):
    """A small core under pressure: few blocks, two slots, four adapters, small steps."""

    @initialize(
        num_blocks=st.integers(17, 40),
        step_tokens=st.integers(9, 64),
        host=st.sampled_from([1_500, 9_000]),
        adapters=st.sampled_from([None, 1]),
        itl_ms=st.sampled_from([None, 25.0]),
    )
    def start(
        self, num_blocks: int, step_tokens: int, host: int, adapters: int | None, itl_ms: float | None
    ) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.bench = Bench(
            Path(self.directory.name),
            num_blocks=num_blocks,
            step_tokens=step_tokens,
            host_budget_bytes=host,
            max_running=8,
            num_slots=2,
            max_adapters_per_step=adapters,
            target_itl_ms=itl_ms,
        )
        self.sent: dict[str, AddRequest] = {}
        self.stopped: dict[str, dict[int, int]] = {}

    @rule(prompt=prompts, ask=asks)
    def arrive(self, prompt: list[int], ask: Ask) -> None:
        request = add(str(len(self.sent)), prompt, ask)
        self.sent[request.request] = request
        self.bench.send(request)

    @rule(count=st.integers(1, 12))
    def run_some(self, count: int) -> None:
        for _ in range(count):
            self.bench.step()

    @rule(duration_s=st.floats(1e-4, 10.0))
    def a_step_took(self, duration_s: float) -> None:
        self.bench.loop._scheduler.observe(self.bench.loop._scheduler.planned, duration_s)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.bench.send(Abort(data.draw(st.sampled_from(sorted(self.sent))), 1))

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), back=st.integers(0, 3))
    def stop(self, data: st.DataObject, back: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.sent)))
        choice = data.draw(st.integers(0, self.sent[name].num_choices - 1))
        count = len(self.bench.tokens(name, choice)) - back
        is_open = any(r.add.request == name for r in self.bench.loop._open)
        if count < 1 or not is_open or choice in self.stopped.get(name, {}) or self.bench.transport.inbox:
            return
        self.bench.send(StopChoice(name, 1, choice, count))
        self.bench.step()
        self.stopped.setdefault(name, {})[choice] = count

    @invariant()
    def tokens_are_the_models(self) -> None:
        for name, request in self.sent.items():
            for choice in range(request.num_choices):
                tokens = self.bench.tokens(name, choice)
                assert tokens == expected(request, choice)[: len(tokens)]

    @invariant()
    def steps_keep_their_limits(self) -> None:
        assert self.bench.runner.most_tokens <= self.bench.config.step_tokens
        assert self.bench.runner.most_adapters <= self.bench.config.adapters_per_step

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.bench.run()
        for name, request in self.sent.items():
            self._check_end(name, request)
        assert [line.request for line in self.bench.lines()] == [e.request for e in self.bench.all_ended()]
        assert self.bench.loop._blocks.num_used == 0
        self.bench.close()
        self.directory.cleanup()

    def _check_end(self, name: str, request: AddRequest) -> None:
        ended = self.bench.ended(name)
        got = [self.bench.tokens(name, choice) for choice in range(request.num_choices)]
        stopped = self.stopped.get(name, {})
        counted = [stopped.get(choice, len(tokens)) for choice, tokens in enumerate(got)]
        assert ended.usage.prompt == len(request.prompt)
        assert ended.usage.completion == sum(counted)
        assert 0 <= ended.usage.cached < len(request.prompt)
        assert ended.outcome in (Outcome.FINISHED, Outcome.ABORTED)
        if ended.outcome is Outcome.FINISHED:
            for choice, tokens in enumerate(got):
                assert choice in stopped or tokens == expected(request, choice)


TestCoreUse = CoreUse.TestCase
TestCoreUse.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    step_tokens=st.integers(9, 80),
    num_blocks=st.integers(24, 60),
)
def test_neither_step_size_nor_memory_changes_an_answer(
    lengths: list[int], step_tokens: int, num_blocks: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory), step_tokens=step_tokens, num_blocks=num_blocks, max_running=8)
        requests = [add(str(i), [1 + j % 5 for j in range(n)]) for i, n in enumerate(lengths)]
        bench.run(*requests)
        assert [bench.tokens(r.request) for r in requests] == [expected(r) for r in requests]
        bench.close()


def test_better_classes_go_first_and_earlier_arrivals_within_a_class(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(max_running=1)
    order = [
        add("batch", [1], Ask(service_class=ServiceClass.BATCH)),
        add("standard1", [2], Ask(service_class=ServiceClass.STANDARD)),
        add("standard2", [3], Ask(service_class=ServiceClass.STANDARD)),
        add("interactive", [4], Ask(service_class=ServiceClass.INTERACTIVE)),
    ]
    bench.run(*order)
    assert [e.request for e in bench.all_ended()] == ["interactive", "standard1", "standard2", "batch"]


def test_a_request_that_waits_long_enough_overtakes_better_classes(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(max_running=1, step_s=0.5, aging_s=10.0)
    bench.send(add("batch", [1], Ask(service_class=ServiceClass.BATCH, max_tokens=2)))
    for i in range(100):
        bench.send(add(f"i{i}", [2 + i % 50], Ask(service_class=ServiceClass.INTERACTIVE, max_tokens=2)))
    bench.run()
    names = [e.request for e in bench.all_ended()]
    assert 10 < names.index("batch") < 40


def test_a_request_that_does_not_fit_now_does_not_hold_up_the_next(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(num_blocks=30)
    running = add("running", [1] * 40, Ask(max_tokens=30))
    bench.send(running)
    bench.step()
    bench.send(add("big", [2] * 90, Ask(max_tokens=2)), add("small", [3] * 4, Ask(max_tokens=2)))
    bench.run()
    assert [e.request for e in bench.all_ended()] == ["small", "running", "big"]


def test_small_requests_do_not_starve_a_big_one(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(num_blocks=60, reserve_after_s=1.0, step_s=0.05)
    bench.runner.record = False
    ended_at: dict[str, int] = {}

    def small(i: int) -> AddRequest:
        return add(f"small{i}", [i % 90 + 1] * 8, Ask(max_tokens=10 + i * 7 % 23))

    bench.send(*[small(i) for i in range(5)])
    bench.step()
    bench.send(add("big", [99] * 180, Ask(max_tokens=2)))
    for step in range(5, 300):
        if len(bench.loop._open) < 6:
            bench.send(small(step))
        bench.step()
        ended_at.update({e.request: step for e in bench.all_ended() if e.request not in ended_at})
    assert ended_at["big"] < 100
    bench.run()


def test_the_last_to_come_in_the_lowest_class_is_preempted_first(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(num_blocks=14)
    classes = [ServiceClass.BATCH, ServiceClass.INTERACTIVE, ServiceClass.STANDARD]
    requests = [add(c.value, [i + 1] * 4, Ask(service_class=c, max_tokens=40)) for i, c in enumerate(classes)]
    bench.run(*requests)
    assert bench.loop._scheduler.counters.preemptions > 0
    assert [e.request for e in bench.all_ended()] == ["interactive", "standard", "batch"]
    assert [bench.tokens(r.request) for r in requests] == [expected(r) for r in requests]


def test_who_has_most_left_to_generate_is_preempted_first(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(num_blocks=20)
    left = {"middle": 40, "most": 60, "least": 26}
    bench.send(*[add(name, [1 + i] * 8, Ask(max_tokens=n)) for i, (name, n) in enumerate(left.items())])
    scheduler = bench.loop._scheduler
    for _ in range(60):
        bench.step()
        if scheduler.counters.preemptions:
            break
    assert [s.request.add.request for s in scheduler._admission.waiting] == ["most"]
    bench.run()
    assert [e.request for e in bench.all_ended()] == ["least", "middle", "most"]


def test_what_a_tenant_waits_for_keeps_nothing_from_one_that_holds_less(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(num_blocks=60, reserve_after_s=0.5, step_s=0.1)
    bench.send(add("running", [1] * 100, Ask(tenant="flood", max_tokens=40)))
    bench.step()
    first = ServiceClass.INTERACTIVE  # so that it is asked before the others
    bench.send(add("big", [2] * 180, Ask(tenant="flood", max_tokens=2, service_class=first)))
    for _ in range(10):
        bench.step()  # now the flood's second is late, and what is free is kept for it
    bench.send(
        add("own", [3] * 16, Ask(tenant="flood", max_tokens=2)),
        add("quiet", [4] * 16, Ask(tenant="quiet", max_tokens=2)),
    )
    bench.step()
    running = {s.request.add.request for s in bench.loop._scheduler._admission.running}
    assert running == {"running", "quiet"}
    bench.run()


def test_the_base_is_in_every_step_and_adapters_take_turns(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(num_slots=4, max_adapters_per_step=1)
    names = ["a", "b", "c", None]
    asks = [add(f"{name}", [1 + i] * 4, Ask(adapter=name, max_tokens=12)) for i, name in enumerate(names)]
    bench.send(*asks)
    for _ in range(13):
        bench.step()
    assert len(bench.tokens("None")) == 12
    shares = [len(bench.tokens(name)) for name in ("a", "b", "c")]
    assert sum(shares) >= 10
    assert min(shares) >= 2
    bench.run()
    assert [bench.tokens(ask.request) for ask in asks] == [expected(ask) for ask in asks]
    assert bench.runner.most_adapters == 1


def test_an_admission_leaves_room_to_grow_while_others_run(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(num_blocks=20, watermark=0.25)
    bench.send(add("running", [1] * 40, Ask(max_tokens=4)))
    bench.step()
    bench.send(add("beside", [2] * 24, Ask(max_tokens=2)))  # 6 blocks of the 10 that are free; 5 must stay
    bench.step()
    scheduler = bench.loop._scheduler
    assert [s.request.add.request for s in scheduler._admission.waiting] == ["beside"]
    bench.run()
    bench.send(add("alone", [3] * 70, Ask(max_tokens=2)))  # with nobody to leave it to
    bench.step()
    assert [s.request.add.request for s in scheduler._admission.running] == ["alone"]
    bench.run()


def test_nobody_is_admitted_in_the_step_of_a_preemption(make_bench: Callable[..., Bench]) -> None:
    """What it freed is for those that run: a newcomer would only be the next to be preempted."""
    bench = make_bench(num_blocks=14)
    bench.send(*[add(f"long{i}", [i + 1] * 4, Ask(max_tokens=40)) for i in range(3)])
    scheduler = bench.loop._scheduler
    preempting_steps = 0
    for step in range(120):
        bench.send(add(f"short{step}", [9 + step % 80] * 2, Ask(max_tokens=2)))
        running, preempted = set(scheduler._admission.running), scheduler.counters.preemptions
        bench.step()
        if scheduler.counters.preemptions > preempted:
            preempting_steps += 1
            assert set(scheduler._admission.running) <= running
            assert scheduler.waiting_tokens == sum(
                sequence.total for sequence in scheduler._admission.waiting
            )
    assert preempting_steps > 0
    bench.run()


def test_decoding_goes_on_while_a_long_prompt_is_computed(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(step_tokens=20, num_blocks=120)
    bench.send(add("talking", [1, 2, 3], Ask(max_tokens=30)))
    for _ in range(3):
        bench.step()
    before = len(bench.tokens("talking"))
    bench.send(add("long", [5] * 200))
    for _ in range(10):
        bench.step()
    assert len(bench.tokens("talking")) == before + 10
    assert bench.tokens("long") == []
    bench.run()


def test_a_long_prompt_of_one_tenant_does_not_hold_up_another(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(num_blocks=200, step_tokens=32)
    bench.send(*[add(f"long{i}", [i + 1] * 200, Ask(tenant="flood", max_tokens=2)) for i in range(3)])
    bench.step()
    bench.send(*[add(tenant, [9] * 16, Ask(tenant=tenant, max_tokens=1)) for tenant in ("quiet", "other")])
    bench.step()
    bench.step()
    assert {e.request for e in bench.all_ended()} == {
        "quiet",
        "other",
    }  # shares of ten tokens a step, not of none
    bench.run()
    assert all(e.outcome is Outcome.FINISHED for e in bench.all_ended())


def test_a_share_that_is_not_wanted_goes_to_the_others(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(num_blocks=200, step_tokens=32)
    bench.send(add("long", [1] * 180, Ask(tenant="a")), add("short", [2] * 4, Ask(tenant="b")))
    bench.step()
    computed = {s.request.add.request: s.computed for s in bench.loop._scheduler._admission.running}
    assert computed == {"long": 28, "short": 4}
    bench.run()


def test_a_tenant_that_runs_nothing_gets_room_from_the_one_that_holds_most(
    make_bench: Callable[..., Bench],
) -> None:
    """Both where blocks are short and where sequences are."""
    for limits in ({"num_blocks": 30, "max_running": 8}, {"num_blocks": 400, "max_running": 3}):
        bench = make_bench(step_s=0.1, reserve_after_s=1.0, step_tokens=64, **limits)
        flood = [add(f"flood{i}", [i + 1] * 24, Ask(tenant="flood", max_tokens=60)) for i in range(6)]
        bench.send(*flood)
        bench.step()
        quiet = add("quiet", [99] * 20, Ask(tenant="quiet", max_tokens=4))
        bench.send(quiet)
        for _ in range(20):
            bench.step()
        assert [e.request for e in bench.all_ended()] == ["quiet"]
        bench.run()
        for request in (quiet, *flood):
            assert bench.tokens(request.request) == expected(request)


def test_a_tenants_only_sequence_is_never_taken_for_another_tenants(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(num_blocks=30, step_s=0.1, reserve_after_s=1.0)
    bench.send(add("only", [1] * 80, Ask(tenant="a", max_tokens=30)))
    bench.step()
    bench.send(add("waits", [2] * 60, Ask(tenant="b", max_tokens=2)))
    bench.run()
    assert bench.loop._scheduler.counters.preemptions == 0
    assert [e.request for e in bench.all_ended()] == ["only", "waits"]


def test_nobody_is_preempted_for_what_would_not_fit_anyway(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(num_blocks=30, step_s=0.1, reserve_after_s=1.0)
    sizes = {"large": 60, "small": 8}
    bench.send(*[add(name, [1] * size, Ask(tenant="a", max_tokens=24)) for name, size in sizes.items()])
    bench.step()
    bench.send(add("huge", [2] * 100, Ask(tenant="b", max_tokens=2)))
    for _ in range(22):
        bench.step()
    assert bench.loop._scheduler.counters.preemptions == 0
    bench.run()
    assert all(e.outcome is Outcome.FINISHED for e in bench.all_ended())
