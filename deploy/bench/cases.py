"""The cases of `make bench`: a replica of ours against itself under another load, or against a peer.

A case is given the replica that it asked for and returns what it found, a row for each comparison.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from deploy.bench.load import Ask, Endpoint, run, run_beside
from deploy.bench.pairs import Measure, Ratio, alternate
from deploy.bench.peers import PeftPeer
from deploy.bench.prompts import asks
from deploy.bench.replica import Replica

STREAMS = 16
MIXED = tuple(f"mixed{i}" for i in range(40))
SMALL = tuple(f"small{i}" for i in range(16))
HOT = MIXED[:6]  # of 8 slots; the other 34 share what is left
HOT_STREAMS, COLD_STREAMS = 12, 4
PEFT_TOKENS = 32  # generated tokens of each row, as in `deploy/bench/peft_peer.py`
LONGEST_WORDS = 7_600  # just under the demo model's context of 8,192 tokens
SHARED_WORDS = 480  # with the template about 512 tokens


@dataclass(frozen=True)
class Setting:
    """What a case may use. A peer that was not named is absent, and its rows are left out."""

    replica: Replica
    peers: Mapping[str, Endpoint]
    peft: PeftPeer | None
    pairs: int


@dataclass(frozen=True)
class Row:
    what: str  # "ours, tok/s / theirs, tok/s", say
    ratio: Ratio
    aim: str  # what it ought to be, as a person would say it


@dataclass(frozen=True)
class Case:
    name: str
    about: str
    slots: int
    measure: Callable[[Setting], Awaitable[list[Row]]]


def rate(
    endpoint: Endpoint,
    models: Sequence[str],
    *,
    count: int,
    streams: int,
    tokens: int = 64,
    beside: str = "",
) -> Measure:
    """Generated tokens a second, prompts of about 94 tokens included. `beside` what it is measured: prompts
    of one comparison never come again in another, whose time a prefix cache would shorten."""

    async def measure(pair: int) -> float:
        seed = (endpoint.name, models[0], len(models), beside, pair)
        return (await run(endpoint, asks(models, count, seed, max_tokens=tokens), streams)).output_rate

    return measure


async def base_streams(setting: Setting) -> list[Row]:
    ours, rows = setting.replica.endpoint, []
    for name, aim in (("vllm", "at least 4"), ("llama", "at least 2")):
        if peer := setting.peers.get(name):
            ratio = await alternate(
                rate(ours, [ours.base_model], count=32, streams=STREAMS, beside=name),
                rate(peer, [peer.base_model], count=32, streams=STREAMS),
                setting.pairs,
            )
            rows.append(Row(f"base, 16 streams: tokens a second, ours / {peer.name}", ratio, aim))
    return rows


async def one_stream(setting: Setting) -> list[Row]:
    ours, rows = setting.replica.endpoint, []
    for name, aim in (("vllm", "at least 2.5"), ("llama", "not set")):
        if peer := setting.peers.get(name):
            ratio = await alternate(
                rate(ours, [ours.base_model], count=2, streams=1, beside=name),
                rate(peer, [peer.base_model], count=2, streams=1),
                setting.pairs,
            )
            rows.append(Row(f"base, one stream: tokens a second, ours / {peer.name}", ratio, aim))
    return rows


async def mixed_adapters(setting: Setting) -> list[Row]:
    ours, models = setting.replica.endpoint, MIXED[:STREAMS]
    base = rate(ours, [ours.base_model], count=32, streams=STREAMS, beside="mixed")
    what = "16 adapters of rank 8 to 64, 16 streams: tokens a second"
    rows = [
        Row(
            f"{what}, with / without adapters",
            await alternate(rate(ours, models, count=32, streams=STREAMS), base, setting.pairs),
            "at least 0.6",
        )
    ]
    if setting.peft is not None:
        peft = setting.peft
        batch = await alternate(
            rate(ours, models, count=16, streams=STREAMS, tokens=PEFT_TOKENS, beside="peft"),
            lambda _: peft.rate("mixed"),
            setting.pairs,
        )
        rows.append(Row(f"{what}, ours / PEFT's mixed batch", batch, "at least 5"))
    if peer := setting.peers.get("vllm-lora"):
        short = partial(rate, count=16, streams=STREAMS, tokens=24, beside=peer.name)
        ratio = await alternate(short(ours, models), short(peer, models), setting.pairs)
        rows.append(Row(f"{what}, ours / {peer.name}", ratio, "at least 20"))
    return rows


async def small_adapters(setting: Setting) -> list[Row]:
    ours = setting.replica.endpoint
    ratio = await alternate(
        rate(ours, SMALL, count=32, streams=STREAMS),
        rate(ours, [ours.base_model], count=32, streams=STREAMS, beside="small"),
        setting.pairs,
    )
    what = "16 adapters of rank 8, 16 streams: tokens a second, with / without adapters"
    return [Row(what, ratio, "at least 0.8")]


async def more_adapters_than_slots(setting: Setting) -> list[Row]:
    ours = setting.replica.endpoint
    through = await alternate(
        rate(ours, MIXED, count=64, streams=STREAMS),
        rate(ours, MIXED[:8], count=64, streams=STREAMS),
        setting.pairs,
    )
    late = await alternate(
        partial(_hot_ttft, ours, beside_cold=True),
        partial(_hot_ttft, ours, beside_cold=False),
        setting.pairs,
    )
    return [
        Row("8 slots, 16 streams: tokens a second, 40 adapters / 8 adapters", through, "at least 0.6"),
        Row(
            "p95 time to first token of 6 resident adapters (12 streams), "
            "with / without 4 streams over 34 cold ones",
            late,
            "at most 1.5",
        ),
    ]


async def _hot_ttft(ours: Endpoint, pair: int, *, beside_cold: bool) -> float:
    """Of the requests after the first of each stream: twelve prompts at once wait for each other."""
    hot = asks(HOT, 120, ("hot", beside_cold, pair))
    if beside_cold:
        cold = asks(MIXED[len(HOT) :], 68, ("cold", pair))
        sample = await run_beside(ours, hot, HOT_STREAMS, cold, COLD_STREAMS, ahead_s=0.0)
    else:
        sample = await run(ours, hot, HOT_STREAMS)
    return sample.without(hot[:HOT_STREAMS]).ttft_ms(0.95)


async def flood(setting: Setting) -> list[Row]:
    ours = setting.replica.endpoint

    async def gap(pair: int, *, flooded: bool) -> float:
        chat = asks([ours.base_model], 4, ("chat", flooded, pair), max_tokens=96, tenant="chat")
        if not flooded:
            return (await run(ours, chat, 2)).gap_ms(0.95)
        long = [
            Ask(ours.base_model, ask.prompt, 8, tenant="flood")
            for ask in asks([ours.base_model], 8, ("flood", pair), num_words=LONGEST_WORDS)
        ]
        return (await run_beside(ours, chat, 2, long, 4)).gap_ms(0.95)

    ratio = await alternate(partial(gap, flooded=True), partial(gap, flooded=False), setting.pairs)
    what = (
        "p95 time between tokens of one tenant's chat, with / without another's flood of the longest prompts"
    )
    return [Row(what, ratio, "under 2")]


async def shared_prefix(setting: Setting) -> list[Row]:
    ours = setting.replica.endpoint

    async def prefill(pair: int, *, shared: bool) -> float:
        questions = [
            Ask(ours.base_model, ask.prompt, 1, system=_system(pair, 0 if shared else number, shared=shared))
            for number, ask in enumerate(asks([ours.base_model], 16, ("users", shared, pair), num_words=12))
        ]
        return (await run(ours, questions, 16)).input_rate

    ratio = await alternate(partial(prefill, shared=True), partial(prefill, shared=False), setting.pairs)
    what = "prompt tokens a second of 16 users, system prompt of 512 tokens shared / of their own"
    return [Row(what, ratio, "at least 3")]


def _system(pair: int, user: int, *, shared: bool) -> str:
    return asks(["-"], 1, ("system", pair, user, shared), num_words=SHARED_WORDS)[0].prompt


CASES: Sequence[Case] = (
    Case("base-16", "The base alone, 32 requests of about 94 + 64 tokens.", 16, base_streams),
    Case("base-1", "The base alone, one request after the other.", 16, one_stream),
    Case("adapters-mixed", "16 adapters of rank 8, 16, 32 and 64 on all linear layers.", 16, mixed_adapters),
    Case("adapters-small", "16 adapters of rank 8 on all linear layers.", 16, small_adapters),
    Case("slots", "More adapters than slots.", 8, more_adapters_than_slots),
    Case("flood", "One tenant's long prompts beside another's chat.", 16, flood),
    Case("prefix", "A system prompt of 512 tokens.", 16, shared_prefix),
)
