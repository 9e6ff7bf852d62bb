"""What is worth an operator's attention, out of what was found. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from gateway.attention.repository import MOST, Found
from gateway.attention.schemas import Finding, QueueNow, Severity
from gateway.billing.money import amount_text
from gateway.models import BudgetRow
from gateway.replicas.schemas import ReplicaOut
from gateway.store_checks.schemas import StoreOut

LONG_WAIT_S: Final = 5.0
FAILING_PART: Final = 0.02
FAILING_LEAST: Final = 5
"""Requests in five minutes: what is fewer may be chance."""
BEHIND: Final = timedelta(minutes=2)
NEARLY_PERCENT: Final = 80

_ORDER: Final[dict[Severity, int]] = {"critical": 0, "warning": 1, "notice": 2}

Budgets = Sequence[tuple[BudgetRow, int, str]]
"""Each with the units spent and its tenant's name."""


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first, of those the newest; at most `MOST` of a kind."""
    newest = sorted(findings, key=lambda one: one.since.timestamp() if one.since else 0.0, reverse=True)
    told: Counter[str] = Counter()
    found: list[Finding] = []
    for one in sorted(newest, key=lambda one: _ORDER[one.severity]):
        told[one.kind] += 1
        if told[one.kind] <= MOST:
            found.append(one)
    return found


def of_requests(found: Any, queue: QueueNow) -> Iterator[Finding]:
    ended = found.well + found.failed
    if found.failed >= FAILING_LEAST and found.failed >= FAILING_PART * ended:
        told = f"{found.failed:,} of {ended:,} requests of the last five minutes failed on our side."
        yield Finding(kind="requests_failing", severity="critical", message=told)
    waits = queue.wait_s is not None and queue.wait_s >= LONG_WAIT_S
    if found.turned_away or waits:
        away = f" It turned {found.turned_away:,} away in five minutes." if found.turned_away else ""
        wait = "" if queue.wait_s is None else f", {queue.wait_s:.1f} s to get through"
        told = f"Waiting: {_many(queue.waiting, 'request')} for {_many(queue.places, 'place')}{wait}.{away}"
        severity: Severity = "critical" if found.turned_away else "warning"
        yield Finding(kind="queue_growing", severity=severity, message=told)


def of_replicas(replicas: Sequence[ReplicaOut]) -> Iterator[Finding]:
    if not any(each.health == "ready" and each.state == "up" for each in replicas):
        told = "No replica is up: nothing is answered."
        yield Finding(kind="no_replica", severity="critical", message=told)
    for each in replicas:
        if each.health == "down":
            told = f"{each.url} does not answer."
            yield Finding(kind="replica_down", severity="critical", message=told, replica=each.id)
        elif each.health == "unfit":
            told = f"{each.url} gets no requests: {each.reason}."
            yield Finding(kind="replica_unfit", severity="warning", message=told, replica=each.id)
        elif each.breaker not in (None, "closed"):
            told = f"The breaker of {each.url} is {each.breaker}: it failed too often in a row."
            yield Finding(kind="replica_breaker_open", severity="warning", message=told, replica=each.id)
        if each.state == "draining":
            told = f"{each.url} is being drained; running there: {_many(each.in_flight, 'request')}."
            yield Finding(kind="replica_draining", severity="notice", message=told, replica=each.id)


def of_store(store: StoreOut | None) -> Iterator[Finding]:
    """None: it did not answer in time."""
    if store is None or not store.reachable:
        why = "it does not answer in time" if store is None else store.message or store.code
        told = f"The object store can't be used: {why}."
        yield Finding(kind="store_unreachable", severity="critical", message=told)
    if store is None:
        return
    if store.versions_lost:
        told = f"The object store has lost {_many(store.versions_lost, 'version')} of adapters: none serves."
        yield Finding(kind="store_lost_versions", severity="critical", message=told)
    last = store.last_check
    if last is not None and (last.state == "failed" or last.clean is False):
        told = f"The last check of the store {'failed' if last.error else 'found differences'}."
        yield Finding(kind="store_check_failed", severity="warning", message=told, since=last.ended_at)


def of_ledger(found: Any, now: datetime) -> Iterator[Finding]:
    until = found.complete_until
    if until is not None and now - until > BEHIND:
        told = "Usage and statements are not complete: a worker or a replica has not told what it counted."
        yield Finding(kind="usage_behind", severity="warning", message=told, since=until)
    if found.unknown:
        told = f"In no sum: {_many(found.unknown, 'attempt')} whose replica has not told its count."
        since = found.unknown_since
        yield Finding(kind="usage_unknown", severity="warning", message=told, since=since)
    if found.unpriced_tenants:
        told = f"Usage of {_many(found.unpriced_tenants, 'tenant')} has no price: no book was in force."
        since = found.unpriced_since
        yield Finding(kind="usage_unpriced", severity="notice", message=told, since=since)


def of_budgets(budgets: Budgets) -> Iterator[Finding]:
    for row, spent, name in budgets:
        percent = spent * 100 // int(row.amount)
        if percent < NEARLY_PERCENT:
            continue
        whose = f"A key of {name}" if row.key_id else name
        told = f"{whose} has used {percent} % of its budget of {amount_text(int(row.amount))} a {row.period}"
        used = percent >= 100
        yield Finding(
            kind="budget_used" if used else "budget_nearly_used",
            severity="warning" if used else "notice",
            message=f"{told}{': it is refused now.' if used and row.hard else '.'}",
            tenant=row.tenant_id,
            tenant_name=name,
            key_id=row.key_id or None,
        )


def of_adapters(found: Found) -> Iterator[Finding]:
    for row in found.rollouts:
        about = {"rollout": row.id, "since": row.since, **_version(row)}
        name = f"{row.adapter}@{row.alias}"
        if row.state == "paused":
            told = f"The rollout of version {row.number} to {name} is paused."
            yield Finding(kind="rollout_paused", severity="notice", message=told, **about)
        else:
            told = f"{name} went back from version {row.number} by itself: {row.reason}"
            yield Finding(kind="rollout_rolled_back", severity="warning", message=told, **about)
    for row in found.rejected:
        told = f"Version {row.number} of {row.adapter} was rejected: {row.reason or 'its proof did not pass'}"
        yield Finding(
            kind="adapter_rejected", severity="notice", message=told, since=row.since, **_version(row)
        )
    for row in found.late_proofs:
        tries = f"; {row.tries} tries, the last: {row.reason}" if row.tries else ""
        told = f"Version {row.number} of {row.adapter} waits for its proof{tries}."
        yield Finding(kind="proof_late", severity="warning", message=told, since=row.since, **_version(row))


def _version(row: Any) -> dict[str, Any]:
    return {
        "tenant": row.tenant_id,
        "tenant_name": row.tenant_name,
        "adapter": row.adapter,
        "version": row.number,
    }


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
