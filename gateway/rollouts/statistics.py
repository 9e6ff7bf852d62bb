"""Whether few numbers say something: exact one-sided tests, in logarithms, without a table."""

from __future__ import annotations

from math import exp, lgamma, log
from typing import Final

_NEGLIGIBLE: Final = 1e-18


def binomial_tail(hits: int, num: int, share: float) -> float:
    """P(X ≥ hits) for X ~ Binomial(num, share). What is not above the mean is no evidence: 1."""
    if hits <= num * share or not hits:
        return 1.0
    if share <= 0.0:
        return 0.0
    assert share < 1.0, "nothing is above a share of all"
    odds = share / (1.0 - share)
    term = exp(_log_choose(num, hits) + hits * log(share) + (num - hits) * log(1.0 - share))
    total, now = 0.0, hits
    while now <= num and term > total * _NEGLIGIBLE:  # terms above the mean only fall
        total += term
        term *= (num - now) / (now + 1) * odds
        now += 1
    return min(1.0, total)


def fisher_tail(hits: int, num: int, other_hits: int, other_num: int) -> float:
    """Fisher's exact test, one-sided: how likely at least `hits` of `num` are when both sides have one share,
    given all hits. What is not above the other's share is no evidence: 1."""
    if hits * other_num <= other_hits * num or not hits:
        return 1.0
    all_hits, all_num = hits + other_hits, num + other_num
    rest = _log_choose(all_num, all_hits)
    term = exp(_log_choose(num, hits) + _log_choose(other_num, other_hits) - rest)
    total, now, others = 0.0, hits, other_hits
    while term > total * _NEGLIGIBLE:
        total += term
        if now == num or others == 0:
            break
        term *= (num - now) / (now + 1) * others / (other_num - others + 1)
        now, others = now + 1, others - 1
    return min(1.0, total)


def _log_choose(num: int, hits: int) -> float:
    return lgamma(num + 1) - lgamma(hits + 1) - lgamma(num - hits + 1)
