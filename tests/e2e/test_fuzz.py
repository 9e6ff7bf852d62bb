"""The tenants' API, fuzzed from its own document: the short form of tests/acceptance/test_fuzz.py."""

from __future__ import annotations

import httpx

from tests.fuzzing import Effort, fresh_key, fuzz

EFFORT = Effort(budget_s=90.0, examples=15, repeatable=True)


def test_only_documented_answers(base_url: str, admin: httpx.Client, base_model: str) -> None:
    with fresh_key(admin) as key:
        findings = fuzz(base_url, key, base_model, EFFORT)
    print(findings.statuses)
    assert findings.wrong == []
    assert findings.statuses.get(200, 0) > 0
    assert findings.requests > 50
