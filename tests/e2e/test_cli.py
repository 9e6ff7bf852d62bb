"""`motet tenants|keys|adapters|usage|billing|requests` as a person runs them: clients of the API, no more."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from adapters.base import BaseSpec
from deploy.bench.random_adapters import Recipe, write_adapter

Motet = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def motet(base_url: str, platform: dict[str, Any], tmp_path: Path) -> Motet:
    """Runs the command with what the environment may give it, away from any `var/`."""

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        known = {"MOTET_URL": base_url, "MOTET_ADMIN_TOKEN": platform["admin"]["token"]}
        return subprocess.run(
            [sys.executable, "-m", "deploy.cli", *arguments],
            env={**os.environ, "MOTET_HOME": str(tmp_path), "COLUMNS": "200", **known, **more},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_tenant_from_its_making_to_its_usage(
    motet: Motet, demo_model_dir: Path, base_model: str, tmp_path: Path
) -> None:
    name = f"cli-{uuid4().hex[:8]}"
    made = answer(motet("tenants", "create", name, "--requests-per-minute", "60", "--json"))
    assert (made["name"], made["requests_per_minute"]) == (name, 60)
    assert name in motet("tenants", "list").stdout
    answer(motet("tenants", "set", name, "--max-parallel", "4", "--json"))
    assert answer(motet("tenants", "show", name, "--json"))["max_parallel"] == 4
    assert answer(motet("tenants", "caches", name, "--json"))["response_cache"] == "off"
    cached = answer(motet("tenants", "caches", name, "--response-cache", "greedy", "--age-s", "60", "--json"))
    assert (cached["response_cache"], cached["response_cache_age_s"]) == ("greedy", 60)
    assert answer(motet("tenants", "drop-caches", name, "--json")) == {"cache_epoch": 2, "answers": 0}
    scopes = ("--scope", "adapters:write", "--scope", "usage:read")
    secret = answer(motet("keys", "create", "--tenant", name, "--name", "ci", *scopes, "--json"))["secret"]

    base = BaseSpec.from_dir(demo_model_dir, base_model)
    folder = write_adapter(tmp_path / "poet", base, Recipe(3, rank=2, layers=[0], targets=["q_proj"]))
    uploaded = answer(motet("adapters", "upload", str(folder), "--json", MOTET_API_KEY=secret))
    assert uploaded["id"] == "poet@1"
    assert "poet@1" in motet("adapters", "show", "poet", "--tenant", name).stdout  # as an operator
    assert "poet" in motet("adapters", "list", MOTET_API_KEY=secret).stdout
    assert answer(motet("adapters", "delete", "poet", "--json", MOTET_API_KEY=secret))["deleted"]
    assert answer(motet("usage", "--json", MOTET_API_KEY=secret))["requests"] == 0

    (key,) = answer(motet("keys", "list", "--tenant", name, "--json"))
    answer(motet("keys", "revoke", key["id"], "--tenant", name, "--json"))
    refused = motet("adapters", "list", MOTET_API_KEY=secret)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "motet: Incorrect API key provided. (401, invalid_api_key)\n"


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        (("tenants", "list"), {"MOTET_URL": "http://127.0.0.1:1"}, "can't be reached: Connection refused"),
        (("tenants", "list"), {"MOTET_URL": "nonsense"}, "is not an http:// or https:// URL"),
        (("tenants", "show", "nobody"), {}, "There is no tenant 'nobody'."),
        (("adapters", "list"), {}, "Name a tenant with --tenant"),
        (("adapters", "upload", "/nowhere"), {}, "holds no adapter_config.json"),
        (("gateway",), {}, "These variables are missing or wrong: MOTET_DATABASE_URL"),
    ],
)
def test_what_fails_says_why_in_one_line(
    motet: Motet, arguments: tuple[str, ...], environment: dict[str, str], said: str
) -> None:
    done = motet(*arguments, **environment)
    assert done.returncode == 1
    assert done.stderr.startswith("motet: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_from_a_price_to_the_files_of_a_month(
    motet: Motet, base_url: str, base_model: str, tmp_path: Path
) -> None:
    """Under real processes: a request, the charging job, the export job, and files that hold the request."""
    tenant = answer(motet("tenants", "create", f"billed-{uuid4().hex[:8]}", "--json"))["name"]
    key = answer(motet("keys", "create", "--tenant", tenant, "--name", "ci", "--scope", "inference",
                       "--scope", "usage:read", "--json"))["secret"]  # fmt: skip
    price = {
        "input": "1",
        "cached_input": "0.5",
        "output": "2",
        "answer_input": "0.1",
        "answer_output": "0.1",
    }
    rows = [{"model": model, **price} for model in ("base", "any_adapter")]
    book = {"effective_from": "2026-01-01T00:00:00Z", "retroactive": True, "prices": rows}
    (tmp_path / "book.json").write_text(json.dumps(book))
    assert (
        answer(motet("billing", "set-prices", str(tmp_path / "book.json"), "--json"))["book"]["version"] >= 1
    )
    answered = httpx.post(
        f"{base_url.removesuffix('/v1')}/v1/completions",
        headers={"authorization": f"Bearer {key}"},
        json={"model": base_model, "prompt": "Hello", "max_tokens": 3, "ignore_eos": True},
        timeout=60,
    )
    asked = answered.json()["usage"]
    until = time.monotonic() + 60
    while (shown := answer(motet("usage", "--json", MOTET_API_KEY=key)))["requests"] == 0:
        assert time.monotonic() < until, shown
        time.sleep(1)
    assert shown["completion_tokens"] == asked["completion_tokens"] == 3
    assert shown["complete_until"] is not None
    statement = answer(motet("billing", "statement", "--tenant", tenant, "--json"))
    assert statement["exact"] == shown["amount"] != "0"
    made = motet("usage", "export", "--out", str(tmp_path / "files"), MOTET_API_KEY=key)
    assert made.returncode == 0, made.stderr
    with (tmp_path / "files" / "charges.csv").open() as opened:
        lines = list(csv.DictReader(opened))
    assert sum(Decimal(line["BilledCost"]) for line in lines) == Decimal(statement["exact"])
    assert {line["SubAccountName"] for line in lines} == {tenant}
    request_id = answered.headers["x-request-id"]
    told = motet("requests", "show", request_id, MOTET_API_KEY=key).stdout
    assert told.startswith("Served after ")
    assert "first_byte" in told
    assert request_id in motet("requests", "list", "--status", "2", "--tenant", tenant).stdout
    (series,) = answer(motet("requests", "metrics", "--json", MOTET_API_KEY=key))["data"]
    assert (series["total"]["served"], series["total"]["completion_tokens"]) == (1, 3)
