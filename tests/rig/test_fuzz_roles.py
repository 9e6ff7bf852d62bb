"""The short form of tests/acceptance/test_fuzz_roles.py: a valid request to each operation of tenants, as
everybody. Under `/api/` all but operators are refused alike (tests/gateway/test_app.py)."""

from __future__ import annotations

from schemathesis.generation import GenerationMode

from tests.fuzzing import Effort, fuzz_as
from tests.rig.rig import Rig
from tests.rig.roles import callers

EFFORT = Effort(budget_s=30.0, examples=1, repeatable=True, modes=(GenerationMode.POSITIVE,))


def test_everybody_hears_documented_answers_only(rig: Rig) -> None:
    findings = fuzz_as(rig.base_url, callers(rig), rig.base_name, EFFORT, prefix="/v1/")
    assert findings.wrong == []
    assert set(findings.by_caller["nobody"]) == {401}
    assert set(findings.by_caller["operator"]) == {401}
    assert 403 in findings.by_caller["key with usage:read"]
    assert 200 in findings.by_caller["key with all scopes"]
    assert findings.requests > findings.operations
