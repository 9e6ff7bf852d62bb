"""Requests made up from the OpenAPI document itself: no undocumented status, and no fault of ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
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

from gateway.principal import Scope

_CARRIED = {"method", "url", "headers", "params", "json", "data", "files"}


@dataclass
class Findings:
    """What came back: how often each status, and what no one should ever see."""

    statuses: dict[int, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    by_caller: dict[str, dict[int, int]] = field(default_factory=dict)
    operations: int = 0

    @property
    def requests(self) -> int:
        return sum(self.statuses.values())


@dataclass(frozen=True)
class Effort:
    """How long and how much. `repeatable`: the same requests in each run, so that a red one is a change's."""

    budget_s: float
    examples: int = 10_000  # most of them for each operation and mode
    repeatable: bool = False
    modes: tuple[GenerationMode, ...] = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


def fuzz(base_url: str, credential: str, base_model: str, effort: Effort) -> Findings:
    """Sends valid and invalid requests to every operation of tenants until the effort is spent."""
    callers = {"tenant": {"authorization": f"Bearer {credential}"}}
    return fuzz_as(base_url, callers, base_model, effort, prefix="/v1/")


def fuzz_as(
    base_url: str,
    callers: Mapping[str, Mapping[str, str]],
    base_model: str,
    effort: Effort,
    *,
    prefix: str = "/",
    ids: Mapping[str, str | int] | None = None,
    restore: Callable[[], None] = lambda: None,
) -> Findings:
    """The same for the operations under `prefix`, each request as every caller (headers by name).

    `ids`: path parameters that name something which is there; others would be a 404 throughout. Of `tenant`
    it is the only value. `restore` is called after each operation, to undo what it may have done to callers.
    """
    budget_s = effort.budget_s
    document: dict[str, Any] = requests.get(f"{base_url}/openapi.json", timeout=60).json()
    _tame(document, base_model, ids or {})
    schema = schemathesis.openapi.from_dict(document)
    operations = [
        operation
        for operation in (found.ok() for found in schema.get_all_operations() if isinstance(found, Ok))
        if operation.path.startswith(prefix)
    ]
    assert operations
    findings = Findings(operations=len(operations))
    with requests.Session() as session:
        target = _Target(base_url, session, callers, findings)
        for left, operation in zip(range(len(operations), 0, -1), operations, strict=True):
            began, share_s = time.monotonic(), budget_s / left
            for number, mode in enumerate(effort.modes, start=1):
                until = began + share_s * number / len(effort.modes)
                _fuzz_operation(target, operation, (mode, effort), until)
            restore()
            budget_s = max(0.0, budget_s - (time.monotonic() - began))
    return findings


@contextmanager
def fresh_key(admin: httpx.Client) -> Iterator[str]:
    """A key with every scope, of a tenant of its own: what is made up may not touch anyone else's."""
    tenant = admin.post("/api/v1/tenants", json={"name": f"fuzz-{uuid4().hex[:12]}"}).json()["id"]
    scopes = [scope.value for scope in Scope]
    made = admin.post(f"/api/v1/tenants/{tenant}/keys", json={"name": "fuzz", "scopes": scopes}).json()
    yield made["secret"]
    admin.patch(f"/api/v1/tenants/{tenant}", json={"status": "suspended"})


def _tame(document: dict[str, Any], base_model: str, ids: Mapping[str, str | int]) -> None:
    """Valid inference requests name a model that exists and end soon, so that they reach a replica; streams
    of changes, which never end, are left out."""
    for path in [path for path in document["paths"] if path.endswith("/changes")]:
        del document["paths"][path]
    for item in document["paths"].values():
        for parameter in (each for operation in item.values() for each in operation.get("parameters", [])):
            name = parameter["name"]
            if parameter["in"] == "path" and name in ids:
                known = {"enum": [ids[name]]}
                parameter["schema"] = known if name == "tenant" else {"anyOf": [known, parameter["schema"]]}
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
    callers: Mapping[str, Mapping[str, str]]
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
        for name, headers in target.callers.items():
            _send(target, case, documented, (name, headers))

    with suppress(_Spent, Unsatisfiable):  # of some operations nothing can be wrong
        attempt()


class _Spent(BaseException):
    """The operation's time is over; hypothesis must not take it for a failure."""


def _send(target: _Target, case: Any, documented: set[str], caller: tuple[str, Mapping[str, str]]) -> None:
    name, headers = caller
    described = case.as_transport_kwargs(base_url=target.base_url, headers=dict(headers))
    named = {part: value for part, value in described.items() if part in _CARRIED}
    try:
        wire = requests.Request(**named).prepare()
        answer = target.session.send(wire, timeout=120)
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidHeader, UnicodeError):
        return  # nothing that HTTP can carry
    for statuses in (target.findings.statuses, target.findings.by_caller.setdefault(name, {})):
        statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
    if answer.status_code == 500 or str(answer.status_code) not in documented:
        what = f"{name}: {wire.method} {wire.path_url} {str(wire.body)[:300]}"
        target.findings.wrong.append(f"{what} → {answer.status_code}: {answer.text[:300]}")
    target.session.cookies.clear()  # of a log-in: the next caller is somebody else
