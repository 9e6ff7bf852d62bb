"""The rules of limits and budgets: who has which, and what is left of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from adapters import wire
from adapters.refusal import refusal_of
from adapters.wire import InferenceRequest
from gateway.api_keys import repository as keys
from gateway.audit.service import Actor, Change, record
from gateway.billing.money import amount_text
from gateway.catalog.service import Catalog
from gateway.db import Database
from gateway.edits import require_match
from gateway.errors import BadRequest, NotFound
from gateway.inference.counting import Counter as TokenCounter
from gateway.limits import repository
from gateway.limits.amounts import Tokens
from gateway.limits.asks import REFUSED, Looked
from gateway.limits.columns import budget_of
from gateway.limits.levels import Plan, plan_of, today
from gateway.limits.limiter import Limiter
from gateway.limits.reservation import Reservation
from gateway.limits.schemas import (
    BucketsOut,
    BucketsPatch,
    LimitNow,
    LimitsNow,
    LimitsOut,
    LimitsPatch,
    Needed,
    Simulated,
    TokenCounts,
)
from gateway.limits.verdict import Need, Refusal, duration, limits_of
from gateway.models import Adapter, ApiKey, BudgetRow, Tenant
from gateway.principal import Budget, Principal, TenantId
from gateway.tenants import epochs
from gateway.tenants import repository as tenants
from gateway.tenants.epochs import Epochs


class LimitSettings:
    """Operators only. All workers act on a change with the tenant's next request."""

    def __init__(self, db: Database, published: Epochs, base_id: str) -> None:
        self._db = db
        self._epochs = published
        self._base_id = base_id

    async def of_tenant(self, tenant: TenantId) -> LimitsOut:
        """Raises `NotFound`."""
        async with self._db.tenant_reader(tenant) as session:
            row = _existing_tenant(await repository.find_tenant(session, tenant))
            return await _told(session, row, tenant, repository.WHOLE_TENANT)

    async def budgets_of_tenant(self, tenant: TenantId) -> tuple[Budget, ...]:
        """Of the tenant itself."""
        async with self._db.tenant_reader(tenant) as session:
            rows = await repository.own_budgets(session, tenant, repository.WHOLE_TENANT)
        return tuple(budget_of(row) for row in rows)

    async def of_key(self, tenant: TenantId, key_id: str) -> LimitsOut:
        """Raises `NotFound`."""
        async with self._db.tenant_reader(tenant) as session:
            row = _existing_key(await repository.find_key(session, tenant, key_id))
            return await _told(session, row, tenant, key_id)

    async def of_adapter(self, tenant: TenantId, name: str) -> BucketsOut:
        """Raises `NotFound`."""
        async with self._db.tenant_reader(tenant) as session:
            found = await repository.find_adapter(session, tenant, self._base_id, name)
            return BucketsOut.of(_existing_adapter(found))

    async def change_tenant(
        self, actor: Actor, tenant: TenantId, wanted: LimitsPatch, if_match: str | None = None
    ) -> LimitsOut:
        """Raises `NotFound`, `BadRequest` for a change of nothing, and `PreconditionFailed`."""
        _not_empty(wanted)
        async with self._db.system_session() as session:
            before = _existing_tenant(await tenants.lock(session, tenant))
            require_match(if_match, (await _told(session, before, tenant, repository.WHOLE_TENANT)).fields())
            changed = _existing_tenant(await tenants.change(session, tenant, wanted.columns()))
            await self._set_budgets(session, tenant, repository.WHOLE_TENANT, wanted)
            record(session, actor, Change("limits.update", changed.name, tenant, _details(wanted)))
        await self._epochs.publish(tenant, changed.epoch)
        return await self.of_tenant(tenant)

    async def change_key(
        self,
        actor: Actor,
        tenant: TenantId,
        key_id: str,
        wanted: LimitsPatch,
        if_match: str | None = None,
    ) -> LimitsOut:
        """Raises `NotFound`, `BadRequest` for a change of nothing, and `PreconditionFailed`."""
        _not_empty(wanted)
        async with self._db.tenant_session(tenant) as session:
            before = _existing_key(await keys.lock(session, tenant, key_id))
            require_match(if_match, (await _told(session, before, tenant, key_id)).fields())
            if wanted.columns():
                await repository.change_key(session, tenant, key_id, wanted.columns())
            await self._set_budgets(session, tenant, key_id, wanted)
            epoch = await epochs.bump(session, tenant)
            record(session, actor, Change("limits.update", f"key:{key_id}", tenant, _details(wanted)))
        await self._epochs.publish(tenant, epoch)
        return await self.of_key(tenant, key_id)

    async def change_adapter(
        self,
        actor: Actor,
        tenant: TenantId,
        name: str,
        wanted: BucketsPatch,
        if_match: str | None = None,
    ) -> BucketsOut:
        """Of its name, in whichever version. Raises `NotFound`, `BadRequest` for a change of nothing, and
        `PreconditionFailed`."""
        _not_empty(wanted)
        async with self._db.tenant_session(tenant) as session:
            row = await repository.find_adapter(session, tenant, self._base_id, name, lock=True)
            found = _existing_adapter(row)
            require_match(if_match, BucketsOut.of(found).fields())
            await repository.change_adapter(session, found, wanted.columns())
            epoch = await epochs.bump(session, tenant)
            record(session, actor, Change("limits.update", f"adapter:{name}", tenant, _details(wanted)))
        await self._epochs.publish(tenant, epoch)
        return await self.of_adapter(tenant, name)

    @staticmethod
    async def _set_budgets(
        session: repository.AnyWrite, tenant: TenantId, key_id: str, wanted: LimitsPatch
    ) -> None:
        for period, budget in wanted.budgets().items():
            if budget is None:
                await repository.drop_budget(session, tenant, key_id, period)
            else:
                row = budget.row(period)
                row.tenant_id, row.key_id = tenant, key_id
                await repository.set_budget(session, row)


class LimitReports:
    """What a key is held to, what is left, and what a request would be told. Takes nothing."""

    def __init__(self, limiter: Limiter, counter: TokenCounter, catalog: Catalog) -> None:
        self._limiter = limiter
        self._counter = counter
        self._catalog = catalog

    async def now(self, principal: Principal, model: str | None) -> LimitsNow:
        """With a model also its adapter's limits. Raises `ModelNotFound`, and `Unavailable`."""
        plan = plan_of(principal, today())
        if model is not None:
            plan = plan.of_model(await self._catalog.resolve(principal, model))
        return LimitsNow(data=_states(plan, await self._limiter.look(plan)))

    async def simulate(self, principal: Principal, body: Mapping[str, Any]) -> Simulated:
        """Raises what the request itself would: `RequestRefused`, `ModelNotFound`; and `Unavailable`."""
        model, tokens = await self._counted(body, principal.tenant)
        resolved = await self._catalog.resolve(principal, model)
        asked = Reservation("", plan_of(principal, today()), principal.service_class, principal.epoch)
        asked.for_model(resolved)
        asked.tokens = tokens
        money = self._limiter.worst(asked)
        looked = await self._limiter.look(asked.plan, tokens, money)
        refusal = _refusal(asked.plan, looked, Need(tokens, money))
        return Simulated(
            allowed=refusal is None,
            needed=Needed(
                requests=1,
                input_tokens=tokens.input,
                output_tokens=tokens.output,
                tokens=tokens.total,
                money=amount_text(money) if money else None,
            ),
            refused_by=None if refusal is None else refusal.details(),
            message=None if refusal is None else refusal.error({}).message,
            limits=_states(asked.plan, looked),
        )

    async def _counted(self, body: Mapping[str, Any], tenant: TenantId) -> tuple[str, Tokens]:
        if "prompt_tokens" in body:
            counts = _counts(body)
            return counts.model, Tokens(counts.prompt_tokens, counts.n * counts.max_tokens)
        try:
            encoded = msgspec.json.encode(body)
        except OverflowError as error:
            raise BadRequest("A number of the request is out of range.", code="invalid_value") from error
        request: InferenceRequest
        request = wire.decode_chat(encoded) if "messages" in body else wire.decode_completion(encoded)
        counted = await self._counter.count(request, len(encoded), tenant)
        return request.model, Tokens(counted.prompt_tokens, request.num_choices * counted.max_tokens)


def _counts(body: Mapping[str, Any]) -> TokenCounts:
    try:
        return msgspec.convert(body, TokenCounts)
    except msgspec.ValidationError as error:
        raise refusal_of(error) from error


def _refusal(plan: Plan, looked: Looked, need: Need) -> Refusal | None:
    if looked.answer.state != REFUSED:
        return None
    limits = limits_of(plan.all_buckets, plan.all_leases, plan.counters)
    return Refusal.of(limits, looked.answer, need)


def _states(plan: Plan, looked: Looked) -> list[LimitNow]:
    found = [
        LimitNow(
            limit_id=bucket.id,
            level=bucket.level.value,
            limit=bucket.limit,
            remaining=left.remaining,
            reserved=None,
            reset=duration(left.reset_us),
            resets_at=None,
        )
        for bucket, left in zip(plan.all_buckets, looked.answer.left, strict=True)
    ]
    for lease, running in zip(plan.all_leases, looked.running, strict=True):
        found.append(
            LimitNow(
                limit_id=lease.id,
                level=lease.level.value,
                limit=lease.limit,
                remaining=max(0, lease.limit - running),
                reserved=running,
                reset=None,
                resets_at=None,
            )
        )
    for counter, spent in zip(plan.counters, looked.spent, strict=True):
        settled, reserved = spent or (0, 0)
        found.append(
            LimitNow(
                limit_id=counter.id,
                level=counter.level.value,
                limit=amount_text(counter.limit),
                remaining=amount_text(max(0, counter.limit - settled - reserved)),
                reserved=amount_text(reserved),
                reset=None,
                resets_at=counter.end,
                hard=counter.hard,
            )
        )
    return found


async def _told(
    session: repository.AnyRead, row: Tenant | ApiKey, tenant: TenantId, key_id: str
) -> LimitsOut:
    budgets: list[BudgetRow] = list(await repository.own_budgets(session, tenant, key_id))
    return LimitsOut.with_budgets(row, budgets)


def _details(wanted: BucketsPatch) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(wanted)
    return found


def _not_empty(wanted: BucketsPatch) -> None:
    if not _details(wanted):
        raise BadRequest("Name at least one field to change.")


def _existing_tenant(row: Tenant | None) -> Tenant:
    if row is None:
        raise NotFound("There is no such tenant.")
    return row


def _existing_key(row: ApiKey | None) -> ApiKey:
    if row is None:
        raise NotFound("There is no such API key.")
    return row


def _existing_adapter(row: Adapter | None) -> Adapter:
    if row is None:
        raise NotFound("There is no such adapter.")
    return row
