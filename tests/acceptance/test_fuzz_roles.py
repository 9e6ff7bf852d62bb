"""The whole OpenAPI document under generated requests, each sent as everybody: no undocumented status, no
500."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.conftest import Record, is_short, seconds
from tests.fuzzing import Effort, fuzz_as
from tests.rig.rig import Shape, running_rig
from tests.rig.roles import MEMBER_ROLES, callers, known_ids, undo


def test_fuzz_roles(demo_model_dir: Path, record: Record) -> None:
    budget_s = seconds("FUZZ_ROLES", 60 if is_short() else 600)
    with running_rig(demo_model_dir, Shape()) as rig:
        owner = rig.tenant()
        findings = fuzz_as(
            rig.base_url,
            callers(rig, owner),
            rig.base_name,
            Effort(budget_s),
            ids=known_ids(rig, owner),
            restore=lambda: undo(rig, owner.tenant),
        )
    record.write(
        "Valid and invalid requests, generated from the OpenAPI document (schemathesis), to every "
        "operation of "
        "tenants, operators and the public, each as everybody in `tests/rig/roles.py`. Two workers, a fake "
        "replica.",
        {
            "operations": findings.operations,
            "requests": findings.requests,
            **{f"by status, {name}": dict(sorted(s.items())) for name, s in findings.by_caller.items()},
            "undocumented statuses and 500s": len(findings.wrong),
        },
        "\n".join(f"- `{line}`" for line in findings.wrong[:20]),
    )
    assert findings.wrong == []
    for role in (*MEMBER_ROLES, "operator"):
        assert findings.by_caller[role].get(200, 0) > 0, role
    assert findings.requests > findings.operations * len(findings.by_caller)
