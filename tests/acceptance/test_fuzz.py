"""The tenants' API under generated requests for five minutes: no undocumented status, no 500."""

from __future__ import annotations

from typing import Any

import httpx

from tests.acceptance.conftest import Record, seconds
from tests.fuzzing import Effort, fresh_key, fuzz


def test_fuzz(base_url: str, admin: httpx.Client, platform: dict[str, Any], record: Record) -> None:
    budget_s = seconds("FUZZ", 300)
    with fresh_key(admin) as key:
        findings = fuzz(base_url, key, platform["base_model"], Effort(budget_s))
    record.write(
        "Valid and invalid requests, generated from the OpenAPI document (schemathesis), to all of `/v1`.",
        {
            "seconds": round(budget_s),
            "requests": findings.requests,
            "by status": dict(sorted(findings.statuses.items())),
            "undocumented statuses and 500s": len(findings.wrong),
        },
        "\n".join(f"- `{line}`" for line in findings.wrong[:20]),
    )
    assert findings.wrong == []
    assert findings.requests > 1_000
