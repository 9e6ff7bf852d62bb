"""`…/adapters/{name}/versions/{number}/proof`, for tenants and under `/api/v1/tenants/{tenant}`."""

from __future__ import annotations

from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from gateway.access import SCOPE
from gateway.audit.service import Actor
from gateway.principal import Principal, Scope
from gateway.proofs.schemas import ProofOut, ProveIn
from gateway.services import Services

PROOF = [
    f"{root}/adapters/{{name:str}}/versions/{{number:int}}/proof"
    for root in ("/v1", "/api/v1/tenants/{tenant:uuid}")
]


@get(PROOF, opt={SCOPE: Scope.ADAPTERS_READ}, summary="What is known of a version, and what proofs found")
async def get_proof(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    name: FromPath[str],
    number: FromPath[int],
) -> ProofOut:
    report = await services.proofs.report(principal, name, number)
    return ProofOut.of(report, services.catalog.base.name)


@post(PROOF, opt={SCOPE: Scope.ADAPTERS_WRITE}, status_code=202, summary="Have a version proved once more")
async def prove_again(
    data: JSONBody[ProveIn],
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    actor: NamedDependency[Actor],
    name: FromPath[str],
    number: FromPath[int],
) -> ProofOut:
    """It answers as before meanwhile. Should it not pass, and on no other weights either, it is rejected."""
    report = await services.proofs.ask_again(principal, actor, name, number, longest=data.longest)
    return ProofOut.of(report, services.catalog.base.name)


handlers = [get_proof, prove_again]
