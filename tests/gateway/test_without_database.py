"""A gateway whose database goes away: it stays ready as long as known keys go on, and says why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from litestar.testing import TestClient

from deploy.local.services import DatabaseUrls
from gateway.app import create_app
from gateway.db import Database
from gateway.principal import TenantId
from tests.gateway.conftest import Operator, settings_of

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"


@pytest.fixture
def alone(
    database: DatabaseUrls, redis_url: str, demo_model_dir: Path, tmp_path: Path
) -> Iterator[TestClient[Any]]:
    """A gateway that nobody has asked for anything."""
    settings = settings_of(database, redis_url, tmp_path)
    app = create_app(settings.model_copy(update={"base_model": str(demo_model_dir)}))
    with TestClient(app, raise_server_exceptions=False) as opened:
        yield opened


def test_it_stays_ready_for_the_keys_that_it_knows(alone: TestClient[Any], operator: Operator) -> None:
    made = alone.post("/api/v1/tenants", json={"name": f"t-{uuid4().hex[:8]}"}, headers=operator.headers)
    tenant = made.json()["id"]
    key = alone.post(f"/api/v1/tenants/{tenant}/keys", json={"name": "k"}, headers=operator.headers).json()
    services = alone.app.state.services
    alone.app.state.services = replace(services, db=Database(NOWHERE, NOWHERE))  # what readiness looks at

    nobody = alone.get("/readyz")
    assert (nobody.status_code, nobody.json()["ready"]) == (503, False)
    headers = {"authorization": f"Bearer {key['secret']}"}
    assert alone.get("/v1/models", headers=headers).status_code == 200  # now it knows one
    known = alone.get("/readyz")
    assert (known.status_code, known.json()["ready"]) == (200, True)
    assert known.json()["checks"]["database"].startswith("The database cannot answer now")

    services.authenticator.invalidate(TenantId(UUID(tenant)))
    assert alone.get("/readyz").status_code == 503
