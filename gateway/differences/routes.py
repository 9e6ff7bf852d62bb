"""`…/adapters/{name}/versions/{number}/diff/{other}`, for tenants and under `/api/v1/tenants/{tenant}`."""

from __future__ import annotations

from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromPath

from gateway.access import SCOPE
from gateway.differences.schemas import DiffOut
from gateway.differences.service import difference
from gateway.principal import Principal, Scope
from gateway.services import Services

DIFF = [
    f"{root}/adapters/{{name:str}}/versions/{{number:int}}/diff/{{other:int}}"
    for root in ("/v1", "/api/v1/tenants/{tenant:uuid}")
]


@get(DIFF, opt={SCOPE: Scope.ADAPTERS_READ}, summary="What another version has otherwise than this one")
async def get_diff(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    name: FromPath[str],
    number: FromPath[int],
    other: FromPath[int],
) -> DiffOut:
    """`number` is the old side, `other` the new one."""
    return await difference(services.proofs, principal, name, (number, other), services.catalog.base.name)


handlers = [get_diff]
