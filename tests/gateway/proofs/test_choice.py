"""Which replica proves."""

from __future__ import annotations

from typing import cast

from gateway.proofs.choice import choose_prover
from gateway.replicas.driver import Driver, ReplicaView
from gateway.replicas.placement import BUSY_TOKENS, rank
from gateway.replicas.replica import Replica

ARTEFACT = "a" * 64


def replicas(*digests: str) -> list[Replica]:
    return [
        Replica(f"http://r{n}", cast(Driver, None), healthy=True, view=ReplicaView(base_digest=digest))
        for n, digest in enumerate(digests)
    ]


def test_free_ones_are_chosen_by_where_the_adapter_will_live() -> None:
    all_of_them = replicas("d", "d", "d")
    home = rank(ARTEFACT, all_of_them)[0]
    assert choose_prover(all_of_them, ARTEFACT, "", {}) is home


def test_a_busy_one_is_only_taken_where_none_is_free() -> None:
    all_of_them = replicas("d", "d")
    home, second = rank(ARTEFACT, all_of_them)
    home.in_flight_tokens = BUSY_TOKENS
    assert choose_prover(all_of_them, ARTEFACT, "", {}) is second
    second.elsewhere_tokens = 2 * BUSY_TOKENS
    assert choose_prover(all_of_them, ARTEFACT, "", {}) is home
    assert choose_prover(all_of_them, ARTEFACT, "", {home.url: 1}) is second


def test_only_those_that_may_serve_and_have_the_weights() -> None:
    first, second, third = all_of_them = replicas("old", "new", "new")
    assert choose_prover([first], ARTEFACT, "new", {}) is None
    second.unfit = "it holds another base"
    assert choose_prover(all_of_them, ARTEFACT, "new", {}) is third
    third.draining = True
    assert choose_prover(all_of_them, ARTEFACT, "new", {}) is None
    assert choose_prover([], ARTEFACT, "", {}) is None
