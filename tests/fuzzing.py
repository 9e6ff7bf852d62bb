"""Requests made up from the OpenAPI document itself: no undocumented status, and no fault of ours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

_CARRIED = {"method", "url", "headers", "params", "json", "data", "files"}


@dataclass
class Findings:
    """What came back: how often each status, and what no one should ever see."""

    statuses: dict[int, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return sum(self.statuses.values())


@dataclass(frozen=True)
class Effort:
    """How long and how much. `repeatable`: the same requests in each run, so that a red one is a change's."""

    budget_s: float
    examples: int = 10_000  # most of them for each operation and mode
    repeatable: bool = False


def fuzz(base_url: str, credential: str, base_model: str, effort: Effort) -> Findings:
    """Sends valid and invalid requests to every operation of tenants until the effort is spent."""
    budget_s = effort.budget_s
    document: dict[str, Any] = requests.get(f"{base_url}/openapi.json", timeout=60).json()
    _tame(document, base_model)
    schema = schemathesis.openapi.from_dict(document)
    operations = [
        operation
        for operation in (found.ok() for found in schema.get_all_operations() if isinstance(found, Ok))
        if operation.path.startswith("/v1/")
    ]
    assert operations
    findings = Findings()
    with requests.Session() as session:
        session.headers["authorization"] = f"Bearer {credential}"
        target = _Target(base_url, session, findings)
        for left, operation in zip(range(len(operations), 0, -1), operations, strict=True):
            began, share_s = time.monotonic(), budget_s / left
            for mode, part in ((GenerationMode.POSITIVE, 0.5), (GenerationMode.NEGATIVE, 1.0)):
                _fuzz_operation(target, operation, (mode, effort), began + share_s * part)
            budget_s = max(0.0, budget_s - (time.monotonic() - began))
    return findings


@contextmanager
def fresh_key(admin: httpx.Client) -> Iterator[str]:
    """A key with every scope, of a tenant of its own: what is made up may not touch anyone else's."""
    tenant = admin.post("/api/v1/tenants", json={"name": f"fuzz-{uuid4().hex[:12]}"}).json()["id"]
    scopes = ["inference", "adapters:read", "adapters:write", "usage:read"]
    made = admin.post(f"/api/v1/tenants/{tenant}/keys", json={"name": "fuzz", "scopes": scopes}).json()
    yield made["secret"]
    admin.patch(f"/api/v1/tenants/{tenant}", json={"status": "suspended"})


def _tame(document: dict[str, Any], base_model: str) -> None:
    """Valid inference requests name a model that exists and end soon, so that they reach a replica."""
    for path in ("/v1/chat/completions", "/v1/completions"):
        body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        body["properties"]["model"] = {"enum": [base_model]}
        body["properties"]["max_tokens"] = {"type": "integer", "minimum": 1, "maximum": 2}
        body["properties"].pop("max_completion_tokens", None)
        body["required"] = [*body.get("required", []), "max_tokens"]


@dataclass
class _Target:
    """Where generated requests go, and what is found."""

    base_url: str
    session: requests.Session
    findings: Findings


def _fuzz_operation(
    target: _Target, operation: Any, how: tuple[GenerationMode, Effort], until: float
) -> None:
    mode, effort = how
    documented = {str(status) for status in operation.definition.raw["responses"]}

    @settings(
        max_examples=effort.examples,
        derandomize=effort.repeatable,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def attempt(case: Any) -> None:
        if time.monotonic() > until:
            raise _Spent
        _send(target, case, documented)

    with suppress(_Spent, Unsatisfiable):  # of some operations nothing can be wrong
        attempt()


class _Spent(BaseException):
    """The operation's time is over; hypothesis must not take it for a failure."""


def _send(target: _Target, case: Any, documented: set[str]) -> None:
    described = case.as_transport_kwargs(base_url=target.base_url, headers=dict(target.session.headers))
    named = {name: value for name, value in described.items() if name in _CARRIED}
    try:
        wire = requests.Request(**named).prepare()
        answer = target.session.send(wire, timeout=120)
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidHeader, UnicodeError):
        return  # nothing that HTTP can carry
    statuses = target.findings.statuses
    statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
    if answer.status_code == 500 or str(answer.status_code) not in documented:
        what = f"{wire.method} {wire.path_url} {str(wire.body)[:300]}"
        target.findings.wrong.append(f"{what} → {answer.status_code}: {answer.text[:300]}")
