"""Rules of summing usage: which sums stand one by one, and what they are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from gateway.db import Database
from gateway.principal import TenantId
from gateway.usage.repository import complete_until, names_of_owners, num_unknown
from gateway.usage.service import Asked, window_asked
from gateway.usage.summary import repository
from gateway.usage.summary.repository import By, Group, Sum, Sums
from gateway.usage.summary.schemas import (
    UsageOfDay,
    UsageOfGroup,
    UsageOfOthers,
    UsageSum,
    UsageSummary,
    sum_fields,
)
from gateway.usage.zones import Window

MAX_GROUPS: Final = 200
"""Stand one by one; the rest are summed."""


async def summary(db: Database, tenant: TenantId, asked: Asked, by: By) -> UsageSummary:
    """Raises `BadRequest` for a window that makes no sense."""
    window = await window_asked(db, tenant, asked)
    async with db.tenant_snapshot(tenant) as session:
        until = await complete_until(session, tenant)
        found = await repository.sums(session, tenant, window, by)
        unknown = await num_unknown(session, tenant, window.start, window.end)
    ordered = sorted(found.groups.items(), key=_largest_first)
    shown, rest = ordered[:MAX_GROUPS], ordered[MAX_GROUPS:]
    owners, names = await _names(db, tenant, by, dict(shown))
    return UsageSummary(
        first=window.days[0],
        last=window.days[-1],
        zone=window.zone,
        start=window.start,
        end=window.end,
        complete_until=until,
        by=by,
        currency=found.currency,
        unknown_requests=unknown,
        total=UsageSum(**sum_fields(found.total)),
        days=_days(window, found),
        groups=[
            UsageOfGroup(
                id=_id(group, owners),
                name=None if group[0] is None else names.get(group[0]),
                **sum_fields(each),
            )
            for group, each in shown
        ],
        others=_others(rest),
    )


def _days(window: Window, found: Sums) -> list[UsageOfDay]:
    """All of them: one without usage is told apart from one that is not known yet by its end."""
    edges = zip(window.edges, window.edges[1:], strict=False)
    return [
        UsageOfDay(day=day, start=start, end=end, **sum_fields(found.days.get(place, Sum())))
        for place, (day, (start, end)) in enumerate(zip(window.days, edges, strict=True))
    ]


def _others(rest: list[tuple[Group, Sum]]) -> UsageOfOthers | None:
    if not rest:
        return None
    whole = sum((each for _, each in rest), Sum())
    return UsageOfOthers(groups=len(rest), **sum_fields(whole))


async def _names(
    db: Database, tenant: TenantId, by: By, groups: Mapping[Group, Sum]
) -> tuple[dict[UUID, str], dict[str, str]]:
    """Of other tenants, whose adapters were used; of keys."""
    async with db.system_reader() as session:
        owners = await names_of_owners(session, {owner for _, owner in groups if owner is not None})
        keys = {name for name, _ in groups if name is not None} if by is By.KEY else set[str]()
        return owners, await repository.key_names(session, tenant, keys)


def _id(group: Group, owners: Mapping[UUID, str]) -> str | None:
    name, owner = group
    return name if owner is None else f"{owners.get(owner, owner)}/{name}"


def _largest_first(item: tuple[Group, Sum]) -> tuple[int, int, str, str]:
    (name, owner), found = item
    return -found.tokens, -found.requests, name or "", str(owner or "")
