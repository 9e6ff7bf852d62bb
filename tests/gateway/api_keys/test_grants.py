"""One rule: what a list shows, what a request is given and what a key may pass on are the same, whatever
the grant."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from adapters.base import BaseSpec
from gateway.api_keys.grants import BY_ROLE, Grant, held_by
from gateway.catalog import repository
from gateway.catalog.names import LIVE
from gateway.catalog.policy import Action, exceeds, may
from gateway.catalog.repository import Line, NewVersion
from gateway.catalog.service import Catalog
from gateway.client_address import parse_address
from gateway.db import Database
from gateway.errors import Forbidden, ModelNotFound
from gateway.models import BaseModel
from gateway.networks import NetworkSet
from gateway.principal import Limits, Principal, Scope, TenantId
from gateway.queueing.classes import CLASSES

ADAPTERS = ["pirate", "shout", "triage"]
NAMES = [*ADAPTERS, "base", "nobody"]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEXTS = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "192.0.2.0/24", "2001:db8::/32", "2001:db8:1::/48"]

limits = st.one_of(st.none(), st.integers(1, 4))
grants = st.builds(
    Grant,
    scopes=st.frozensets(st.sampled_from(Scope), min_size=1),
    allowed_models=st.none() | st.frozensets(st.sampled_from(NAMES), min_size=1),
    service_class=st.sampled_from(CLASSES),
    allowed_networks=st.none() | st.builds(NetworkSet, st.lists(st.sampled_from(TEXTS), min_size=1)),
    expires_at=st.none() | st.integers(0, 3).map(lambda days: NOW + timedelta(days=days)),
    limits=st.builds(Limits, limits, limits, limits),
)


def principal(grant: Grant, tenant: TenantId | None = None) -> Principal:
    return Principal(
        tenant=tenant or TenantId(uuid4()),
        tenant_name="acme",
        key_id="k",
        scopes=grant.scopes,
        tenant_limits=Limits(),
        key_limits=grant.limits,
        salt="salt",
        epoch=1,
        service_class=grant.service_class,
        allowed_models=grant.allowed_models,
        allowed_networks=grant.allowed_networks,
        expires_at=grant.expires_at,
    )


@settings(max_examples=300, deadline=None)
@given(held=grants, wanted=grants)
@example(
    Grant(frozenset({Scope.ADAPTERS_WRITE})), Grant(frozenset({Scope.ADAPTERS_READ}))
)  # the one holds the other
def test_a_key_that_may_be_given_can_do_nothing_that_its_giver_can_not(held: Grant, wanted: Grant) -> None:
    """And one that can do nothing more may be given."""
    more: list[object] = [scope for scope in Scope if wanted.may(scope) and not held.may(scope)]
    more += [
        (action, name)
        for action in Action
        for name in [*NAMES, "made later"]
        if may(wanted, action, name) and not may(held, action, name)
    ]
    assert (exceeds(held, wanted) is not None) == bool(more)
    if held.covers(wanted):
        assert not more
        assert CLASSES.index(wanted.service_class) >= CLASSES.index(held.service_class)
        assert _lives(held) >= _lives(wanted)
        for text in [
            "10.0.0.1",
            "10.1.0.1",
            "10.1.2.3",
            "192.0.2.9",
            "2001:db8::1",
            "2001:db8:1::1",
            "8.8.8.8",
        ]:
            assert _reaches(held, text) or not _reaches(wanted, text)


def _lives(grant: Grant) -> datetime:
    return grant.expires_at or datetime.max.replace(tzinfo=UTC)


def _reaches(grant: Grant, text: str) -> bool:
    address = parse_address(text)
    assert address is not None
    return grant.allowed_networks is None or address in grant.allowed_networks


@given(grant=grants)
def test_every_grant_covers_itself_and_everything_covers_it(grant: Grant) -> None:
    assert grant.covers(grant)
    assert held_by(principal(grant)) == grant
    assert all(role_grant.covers(grant) for role, role_grant in BY_ROLE.items() if role != "developer")


@given(a=grants, b=grants, c=grants)
def test_what_is_passed_on_twice_is_still_within(a: Grant, b: Grant, c: Grant) -> None:
    if a.covers(b) and b.covers(c):
        assert a.covers(c)


def test_each_field_that_goes_beyond_is_named() -> None:
    held = Grant(
        scopes=frozenset({Scope.INFERENCE}),
        allowed_models=frozenset({"pirate"}),
        service_class="standard",
        allowed_networks=NetworkSet(["10.0.0.0/8"]),
        expires_at=NOW,
        limits=Limits(requests_per_minute=5),
    )
    beyond = {
        "scopes": replace(held, scopes=frozenset({Scope.USAGE_READ})),
        "allowed_models": replace(held, allowed_models=None),
        "service_class": replace(held, service_class="interactive"),
        "allowed_networks": replace(held, allowed_networks=None),
        "expires_at": replace(held, expires_at=None),
        "requests_per_minute": replace(held, limits=Limits()),
    }
    for name, wanted in beyond.items():
        with pytest.raises(Forbidden) as caught:
            held.require(wanted)
        assert caught.value.param == name
    held.require(replace(held, service_class="batch", allowed_networks=NetworkSet(["10.2.0.0/16"])))


@pytest.fixture
async def catalog(db: Database, tenant: TenantId, demo_model_dir: Path) -> Catalog:
    """Three adapters of the tenant's over a real base."""
    base = BaseSpec.from_dir(demo_model_dir, "base")
    async with db.system_session() as session:
        await session.merge(BaseModel(base_id=base.base_id, name="base", spec={}))
    manifest = {"ranks": [1], "targets": ["q_proj"], "num_modules": 1, "num_parameters": 1}
    async with db.tenant_session(tenant) as session:
        for name in ADAPTERS:
            digest = uuid4().hex * 2
            row = await repository.lock_or_add_adapter(session, Line(tenant, base.base_id), name)
            await repository.add_version(session, row, NewVersion(digest, digest, manifest, 1))
            await repository.move_alias(session, row, LIVE, 1)
    return Catalog(db, base)


async def test_a_list_names_what_requests_are_given_and_what_keys_may_be_made_for(
    catalog: Catalog, tenant: TenantId
) -> None:
    """Against real rows, under many grants; the same names must come out three times."""

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(grant=grants)
    def collect(grant: Grant) -> None:
        found.append(grant)

    found: list[Grant] = []
    collect()
    for grant in found:
        holder = principal(grant, tenant)
        given_out = {name for name in NAMES if await _resolves(catalog, holder, name)}
        passed_on = {name for name in [*ADAPTERS, "base"] if grant.covers(_for_one(grant, name))}
        if grant.may(Scope.INFERENCE):
            listed = {model.id for model in await catalog.list_models(holder)}
            assert listed == given_out == passed_on
        else:
            with pytest.raises(Forbidden):
                await catalog.list_models(holder)
            assert given_out == passed_on == set()


def _for_one(grant: Grant, name: str) -> Grant:
    """A key for inference with one model, else as bounded as its giver."""
    return replace(grant, scopes=frozenset({Scope.INFERENCE}), allowed_models=frozenset({name}))


async def _resolves(catalog: Catalog, holder: Principal, name: str) -> bool:
    try:
        await catalog.resolve(holder, name)
    except (ModelNotFound, Forbidden):
        return False
    return True
