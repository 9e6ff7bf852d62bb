"""Rows as the API shows them."""

from __future__ import annotations

from gateway.catalog.repository import AdapterRow
from gateway.catalog.schemas import AdapterOut, ModelOut, VersionOut
from gateway.catalog.service import Model
from gateway.models import AdapterVersion


def model_out(model: Model) -> ModelOut:
    return ModelOut(
        id=model.id, created=int(model.created.timestamp()), owned_by=model.owned_by, parent=model.parent
    )


def adapter_out(row: AdapterRow, base: str) -> AdapterOut:
    return AdapterOut(
        id=row.adapter.name,
        name=row.adapter.name,
        base=base,
        aliases=row.aliases,
        latest=row.latest,
        created_at=row.adapter.created_at.isoformat(),
    )


def version_out(name: str, version: AdapterVersion, aliases: dict[str, int], base: str) -> VersionOut:
    return VersionOut(
        id=f"{name}@{version.number}",
        adapter=name,
        version=version.number,
        state=version.state,
        aliases=sorted(alias for alias, number in aliases.items() if number == version.number),
        base=base,
        digest=version.content_digest,
        artefact=version.artefact,
        ranks=version.manifest["ranks"],
        targets=version.manifest["targets"],
        num_modules=version.manifest["num_modules"],
        num_parameters=version.manifest["num_parameters"],
        bytes=version.num_bytes,
        created_at=version.created_at.isoformat(),
    )
