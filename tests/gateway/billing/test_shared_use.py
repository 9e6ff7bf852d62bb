"""Who used a shared adapter: the user pays and sees it in its usage, the owner reads who and how much."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import date, timedelta
from typing import Any

import pytest

from gateway.errors import BadRequest, Forbidden
from gateway.principal import Limits, Principal, Scope, TenantId
from gateway.sharing import usage as sharing
from gateway.sharing.schemas import SharedUseReport, SharedUseRow
from gateway.usage.service import Asked, report
from tests.gateway.billing.conftest import JANUARY, NOON, Bench, prices, usage
from tests.gateway.billing.test_exports import made, rows_of

NewTenant = Callable[[], Awaitable[TenantId]]
LAST = JANUARY.replace(day=31)


def asking(tenant: TenantId, *scopes: Scope) -> Principal:
    return Principal(
        tenant=tenant,
        tenant_name="",
        key_id="k",
        scopes=frozenset(scopes),
        tenant_limits=Limits(),
        key_limits=Limits(),
        salt="",
        epoch=1,
    )


async def shared_use(bench: Bench, owner: TenantId, adapter: str | None = None) -> SharedUseReport:
    principal = asking(owner, Scope.USAGE_READ)
    return await sharing.shared_use(bench.db, principal, Asked(JANUARY, LAST, "UTC"), adapter)


async def used(bench: Bench, user: TenantId, owner: TenantId, *days: int, **more: Any) -> None:
    of = {"adapter_name": "pirate", "adapter_version": 3, "owner_id": owner, "artefact": "a" * 64}
    await bench.add(*(usage(user, NOON + timedelta(days=day), **{**of, **more}) for day in days))


async def test_an_owner_sees_who_used_what_and_the_user_pays(bench: Bench, new_tenant: NewTenant) -> None:
    owner, first, second, stranger = [await new_tenant() for _ in range(4)]
    await bench.set_prices(prices("1"))
    await used(bench, first, owner, 0, 0, 1)
    await used(bench, second, owner, 0, adapter_name="poet")
    await used(bench, first, first, 0)  # its own, of the same name
    await used(bench, owner, owner, 0)
    await used(bench, first, stranger, 0)
    await used(bench, second, owner, 0, purpose="probe")
    await bench.charging.run_once()
    await bench.complete_until(NOON + timedelta(days=2))
    names = {each: await bench.tenant_name(each) for each in (owner, first, second, stranger)}
    told = await shared_use(bench, owner)
    day = date(2026, 1, 15)
    expected = [
        SharedUseRow(day, names[first], "pirate", 2, 200, 20, 80),
        SharedUseRow(day, names[second], "poet", 1, 100, 10, 40),
        SharedUseRow(day + timedelta(days=1), names[first], "pirate", 1, 100, 10, 40),
    ]
    assert sorted(told.data, key=lambda row: (row.day, row.adapter)) == expected
    assert (told.requests, told.prompt_tokens, told.completion_tokens) == (4, 400, 40)
    assert told.complete_until is not None
    assert (await shared_use(bench, owner, "poet")).requests == 1
    assert [row.tenant for row in (await shared_use(bench, stranger)).data] == [names[first]]
    for user in (first, second):  # of what it used itself it is told elsewhere, and of others nothing
        assert (await shared_use(bench, user)).data == []
    assert (await bench.charges(owner))[0].requests == len(await bench.charges(owner)) == 1
    paid = await report(bench.db, first, Asked(JANUARY, LAST))
    by_adapter = {(row.day.day, row.adapter): row.requests for row in paid.data}
    assert by_adapter == {
        (15, "pirate"): 1,
        (15, f"{names[owner]}/pirate"): 2,
        (15, f"{names[stranger]}/pirate"): 1,
        (16, f"{names[owner]}/pirate"): 1,
    }
    assert sum(int(row.amount.replace(".", "") or 0) for row in paid.data if row.amount) > 0
    resources = {row["ResourceName"] for row in await rows_of(bench, await made(bench, first))}
    assert resources == {f"{names[each]}/pirate@3" for each in (owner, first, stranger)}


async def test_who_may_not_read_it_and_what_is_too_much(
    bench: Bench, new_tenant: NewTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, user = await new_tenant(), await new_tenant()
    await used(bench, user, owner, 0, 1, 2)
    await bench.charging.run_once()
    with pytest.raises(Forbidden):
        await sharing.shared_use(bench.db, asking(owner, Scope.INFERENCE), Asked(None, None, "UTC"), None)
    principal = asking(owner, Scope.USAGE_READ)
    with pytest.raises(BadRequest, match="days at a time"):
        await sharing.shared_use(bench.db, principal, Asked(date(2020, 1, 1), LAST, "UTC"), None)
    monkeypatch.setattr(sharing, "MAX_ROWS", 2)
    with pytest.raises(BadRequest) as refused:
        await shared_use(bench, owner)
    assert refused.value.code == "report_too_large"
    assert (await shared_use(bench, user)).data == []
