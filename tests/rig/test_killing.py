"""The check of bills after kills: what it lets pass, and what not."""

from __future__ import annotations

from tests.rig.killing import Bills, Row, Told

TOLD = Told(whole={"plain": 9}, kept={"retried": 9}, keyed={"key": {"retried"}})
PLAIN = Row("plain", 1, 9, 9, True, None)
DEAD, FREE = Row("retried", 1, 4, 4, True, None), Row("retried", 3, 9, 0, False, "key")


def test_a_retry_may_pay_for_its_dead_workers_attempt_only() -> None:
    less = ["retried: 9 tokens told, 4 billed"]
    assert Bills.of([PLAIN, DEAD, FREE], TOLD) == Bills([], less)
    assert Bills.of([PLAIN, Row("retried", 1, 9, 9, True, "key")], TOLD) == Bills([], [])


def test_whatever_else_is_billed_otherwise_is_wrong() -> None:
    by_owner = Row("retried", 1, 4, 4, True, "key")
    assert Bills.of([PLAIN, DEAD], TOLD).wrong == ["retried: 9 tokens told, 4 billed"]
    assert Bills.of([PLAIN, by_owner, FREE], TOLD).wrong == ["retried: 9 tokens told, 4 billed"]
    assert Bills.of([PLAIN, FREE], TOLD).wrong == ["retried: 9 tokens told, None billed"]
    short = Row("plain", 1, 4, 4, True, None)
    assert Bills.of([short, DEAD, FREE], TOLD).wrong == ["plain: 9 tokens told, 4 billed"]


def test_a_key_pays_once() -> None:
    again = Row("other", 1, 9, 9, True, "key")
    assert Bills.of([PLAIN, DEAD, FREE, again], TOLD).wrong == ["key: billed 2 times"]
