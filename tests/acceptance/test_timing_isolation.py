"""One tenant's answers and prefixes are probed by another: by content (headers, counts) and by time, over
many probes; with the same probes by their owner beside them, to show that the clock would have told."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx

from tests.acceptance.conftest import Record, is_short, times
from tests.rig.ranks import Ranks, mann_whitney

WORDS = [
    "weir",
    "heron",
    "brook",
    "stone",
    "lantern",
    "copper",
    "thistle",
    "meadow",
    "harbour",
    "candle",
    "walnut",
    "saddle",
    "pepper",
    "marble",
]
PROMPT_WORDS = 160
ALIKE_P, APART_P = 0.01, 0.001


@dataclass
class Probes:
    """Seconds by probe. `hints`: what told by content."""

    known: list[float] = field(default_factory=list)  # the stranger asks what the owner has asked
    fresh: list[float] = field(default_factory=list)  # and what nobody has
    hit: list[float] = field(default_factory=list)  # the owner again: from its response cache
    prefix: list[float] = field(
        default_factory=list
    )  # the owner again, another answer: from its prefix cache
    hints: list[str] = field(default_factory=list)


def test_timing_isolation(
    base_url: str, admin: httpx.Client, platform: dict[str, Any], record: Record
) -> None:
    probes = Probes()
    with _tenant(base_url, admin) as owner, _tenant(base_url, admin) as stranger:
        for number in range(times(400, 40)):
            _probe(owner, stranger, platform["base_model"], number, probes)
    alike = mann_whitney(probes.known, probes.fresh)
    answers, prefixes = (mann_whitney(mine, probes.fresh) for mine in (probes.hit, probes.prefix))
    record.write(
        f"Two tenants with response caches. One asks prompts of {PROMPT_WORDS} words; the other asks the "
        f"same "
        "bodies, and others of the same length that nobody asked, in random order (greedy, one token, whole "
        "answers, one at a time). The owner asks again too: the same (its response cache answers), and "
        "for two "
        "tokens (its prefix cache helps). Mann-Whitney, two-sided; the area is how often a probe of what was "
        "asked before takes less time than a fresh one, 0.5 where the two can't be told apart.",
        {
            "probes of each kind": len(probes.known),
            "hints by content (a hit, cached tokens)": len(probes.hints),
            "another tenant's prompts": _told(alike),
            "control: own response cache": _told(answers),
            "control: own prefix cache": _told(prefixes),
        },
        "\n".join(f"- {hint}" for hint in probes.hints[:20]),
    )
    assert probes.hints == []
    assert alike.p > ALIKE_P
    assert answers.p < APART_P
    assert prefixes.p < APART_P


def _told(ranks: Ranks) -> str:
    if is_short():
        return "can be told apart" if ranks.p < APART_P else "can't be told apart"
    return f"area {ranks.auc:.3f}, p = {ranks.p:.3g}"


@contextmanager
def _tenant(base_url: str, admin: httpx.Client) -> Iterator[httpx.Client]:
    made = admin.post("/api/v1/tenants", json={"name": f"probe-{uuid4().hex[:12]}"}).json()
    path = f"/api/v1/tenants/{made['id']}"
    assert admin.patch(f"{path}/caches", json={"response_cache": "greedy"}).status_code == 200
    key = admin.post(f"{path}/keys", json={"name": "probe"}).json()["secret"]
    with httpx.Client(base_url=base_url, headers={"authorization": f"Bearer {key}"}, timeout=120) as client:
        yield client
    admin.patch(path, json={"status": "suspended"})


def _probe(owner: httpx.Client, stranger: httpx.Client, model: str, number: int, probes: Probes) -> None:
    draw = random.Random(number)
    known, fresh = (_body(model, draw) for _ in range(2))
    _ask(owner, known)
    order = [(known, probes.known), (fresh, probes.fresh)]
    draw.shuffle(order)
    for body, seconds in order:
        answer, spent = _ask(stranger, body)
        seconds.append(spent)
        if answer.headers["x-motet-cache"] != "miss" or _cached(answer):
            probes.hints.append(
                f"probe {number}: {answer.headers['x-motet-cache']}, {_cached(answer)} cached"
            )
    answer, spent = _ask(owner, known)
    assert answer.headers["x-motet-cache"] == "hit"
    probes.hit.append(spent)
    answer, spent = _ask(owner, {**known, "max_tokens": 2})
    assert _cached(answer) > 0
    probes.prefix.append(spent)


def _body(model: str, draw: random.Random) -> dict[str, Any]:
    prompt = " ".join(draw.choices(WORDS, k=PROMPT_WORDS))
    return {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True}


def _ask(client: httpx.Client, body: dict[str, Any]) -> tuple[httpx.Response, float]:
    began = time.perf_counter()
    answer = client.post("/v1/completions", json=body)
    spent = time.perf_counter() - began
    assert answer.status_code == 200, answer.text
    return answer, spent


def _cached(answer: httpx.Response) -> int:
    return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
