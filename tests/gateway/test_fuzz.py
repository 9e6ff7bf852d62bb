"""The operators' API under generated requests: no 500, and no status that the document does not name."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from litestar.testing import TestClient
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import status_code_conformance

from tests.gateway.conftest import Operator
from tests.gateway.route_bodies import NO_STREAM

EXAMPLES = 6  # of each operation and mode
BASE_URL = "http://testserver.local"
CARRIED = {"method", "url", "headers", "params", "json", "data", "files", "cookies"}


@pytest.fixture
def api(client: TestClient[Any], operator: Operator) -> Any:
    """The document, for one tenant that exists: any other would be a 404 throughout."""
    made = client.post("/api/v1/tenants", json={"name": uuid4().hex}, headers=operator.headers).json()
    document = client.get("/openapi.json").json()
    document["paths"] = {path: item for path, item in document["paths"].items() if path.startswith("/api/")}
    del document["paths"]["/api/v1/session"]  # its own limit on guessing would be all that answers
    for item in document["paths"].values():
        for operation in item.values():
            for parameter in operation.get("parameters", []):
                if (parameter["in"], parameter["name"]) == ("path", "tenant"):
                    parameter["schema"] = {"enum": [made["id"]]}
    return schemathesis.openapi.from_dict(document)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_generated_requests_meet_documented_answers_only(
    api: Any, client: TestClient[Any], operator: Operator, mode: GenerationMode
) -> None:
    asked = 0
    for result in api.get_all_operations():
        operation = result.ok()

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def send(case: Any) -> None:
            nonlocal asked
            described = case.as_transport_kwargs(base_url=BASE_URL, headers=operator.headers | NO_STREAM)
            named = {name: value for name, value in described.items() if name in CARRIED}
            wire = requests.Request(**named).prepare()
            body = wire.body.encode() if isinstance(wire.body, str) else wire.body
            assert body is None or isinstance(body, bytes)
            headers = {name: str(value) for name, value in wire.headers.items()}
            answer = client.request(str(wire.method), str(wire.url), content=body, headers=headers)
            case.validate_response(answer, checks=[not_a_server_error, status_code_conformance])
            asked += 1

        try:
            send()
        except Unsatisfiable:  # nothing of this operation can be wrong
            assert mode is GenerationMode.NEGATIVE
    assert asked > EXAMPLES
