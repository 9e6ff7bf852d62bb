"""The short form of tests/acceptance/test_fuzz_roles.py: a valid request to each operation of tenants, as
everybody. A member's token is none of a key's, whatever the role; under `/api/` each role is tried in
tests/gateway/test_roles.py."""

from __future__ import annotations

from schemathesis.generation import GenerationMode

from gateway.principal import Role
from tests.fuzzing import Effort, fuzz_as
from tests.rig.rig import Rig
from tests.rig.roles import MEMBER_ROLES, callers

REFUSED_ALIKE = set(MEMBER_ROLES) - {Role.TENANT_ADMIN}
EFFORT = Effort(budget_s=30.0, examples=1, repeatable=True, modes=(GenerationMode.POSITIVE,))


def test_everybody_hears_documented_answers_only(rig: Rig) -> None:
    everybody = callers(rig, rig.tenant(), but=(*REFUSED_ALIKE, "replica"))
    findings = fuzz_as(rig.base_url, everybody, rig.base_name, EFFORT, prefix="/v1/")
    assert findings.wrong == []
    assert set(findings.by_caller["nobody"]) == {401}
    for name in ("operator", Role.TENANT_ADMIN):
        assert set(findings.by_caller[name]) == {401}, name
    assert 403 in findings.by_caller["key with usage:read"]
    assert 200 in findings.by_caller["key with all scopes"]
    assert findings.requests > findings.operations
