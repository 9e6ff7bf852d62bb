"""What an upload is answered, once its version is stored: whichever way its bytes came."""

from __future__ import annotations

from typing import Final

from litestar import Response

from gateway.catalog.allowed import Viewer
from gateway.catalog.intake import Stored
from gateway.catalog.names import is_name
from gateway.catalog.schemas import VersionOut
from gateway.errors import BadRequest, Unprocessable
from gateway.models import VersionState
from gateway.services import Services

NO_ALIAS: Final = "none"


def alias_of(given: str) -> str | None:
    """The alias that an upload names; None for `none`. Raises `BadRequest`."""
    if given == NO_ALIAS:
        return None
    if not is_name(given) or given.isdigit():
        message = "Invalid alias: a name that is not a number, or 'none'."
        raise BadRequest(message, param="alias", code="invalid_alias")
    return given


def preferred_wait_s(prefer: str, most_s: float) -> float:
    """How long the answer may take after the upload is stored, by its `Prefer` header (RFC 7240)."""
    for each in prefer.lower().split(","):
        name, _, value = each.split(";")[0].strip().partition("=")
        if name.strip() == "respond-async":
            return 0.0
        if name.strip() == "wait" and value.strip().isdecimal():
            most_s = min(most_s, float(value.strip()[:9]))
    return most_s


async def answer_upload(
    services: Services, viewer: Viewer, stored: Stored, place: str, wait_s: float
) -> Response[VersionOut]:
    """Waits for the proof of a new version, up to `wait_s`. Raises `Unprocessable` for one that is rejected.
    `place`: the version, for `Location`."""
    row, version = stored.adapter, stored.version
    if stored.created:
        row, version = await services.proofs.settle(viewer.principal.tenant, row, version, wait_s)
    headers = {"location": place}
    if stored.created and version.state == VersionState.REJECTED:
        error = Unprocessable(
            f"The adapter is rejected: {version.reason}.",
            code="proof_failed",
            headers=headers,
            details={"version": f"{row.adapter.name}@{version.number}"},
        )
        raise error
    status = 200
    if stored.created:
        status = 201 if version.state == VersionState.READY else 202
    body = VersionOut.of(row, version, services.catalog.base.name, viewer)
    return Response(body, status_code=status, headers=headers)
