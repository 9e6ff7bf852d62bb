"""HTTP of receipts."""

from __future__ import annotations

from uuid import UUID

from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromPath

from gateway.access import SCOPE
from gateway.principal import Principal, Scope
from gateway.receipts.schemas import ReceiptKeyList, ReceiptKeyOut, ReceiptOut
from gateway.services import Services
from gateway.usage.service import require_usage

OWN = ["/v1/usage", "/api/v1/tenants/{tenant:uuid}/usage"]


@get([f"{path}/{{request_id:uuid}}/receipt" for path in OWN], summary="What a request used, signed")
async def get_receipt(
    services: NamedDependency[Services], principal: NamedDependency[Principal], request_id: FromPath[UUID]
) -> ReceiptOut:
    require_usage(principal)
    found = await services.receipts.of_request(principal.tenant, request_id)
    cost = None if found is None else await services.billing.price_book.cost_of(found.row)
    return ReceiptOut.of(request_id, found, cost)


@get(
    [f"{path}/receipt-keys" for path in OWN],
    opt={SCOPE: Scope.USAGE_READ},
    summary="The keys that check receipts offline",
)
async def get_receipt_keys(
    services: NamedDependency[Services], principal: NamedDependency[Principal]
) -> ReceiptKeyList:
    found = services.receipts.keys_of(principal.tenant)
    return ReceiptKeyList([ReceiptKeyOut.of(key, place == 0) for place, key in enumerate(found)])


handlers = [get_receipt, get_receipt_keys]
