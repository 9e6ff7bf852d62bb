"""The commands of `motet` that are clients of the API, as a person runs them."""

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
from typer.testing import CliRunner

from adapters.base import BaseSpec
from deploy.bench.random_adapters import Recipe, write_adapter
from deploy.cli import build_app

Motet = Callable[..., "subprocess.CompletedProcess[str]"]

POET = Recipe(3, rank=2, layers=[0], targets=["q_proj"], std=0.2)


@pytest.fixture
def environment(base_url: str, platform: dict[str, Any], tmp_path: Path) -> dict[str, str]:
    """What the environment may give a command, away from any `var/`."""
    known = {"MOTET_URL": base_url, "MOTET_ADMIN_TOKEN": platform["admin"]["token"]}
    return {"MOTET_HOME": str(tmp_path), "COLUMNS": "200", **known}


@pytest.fixture
def motet(environment: dict[str, str]) -> Motet:
    """Runs the command in this process: most of a short process would be Python's own start."""

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        app, said = build_app(arguments), {**environment, **more}
        done = CliRunner().invoke(app, arguments, env=said, prog_name="motet", catch_exceptions=False)
        return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)

    return run


@pytest.fixture
def motet_process(environment: dict[str, str]) -> Motet:
    """The same as a process of its own."""

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "deploy.cli", *arguments],
            env={**os.environ, **environment, **more},
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
    motet: Motet, motet_process: Motet, demo_model_dir: Path, base_model: str, tmp_path: Path
) -> None:
    name = f"cli-{uuid4().hex[:8]}"
    made = answer(motet_process("tenants", "create", name, "--requests-per-minute", "60", "--json"))
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
    folder = write_adapter(tmp_path / "poet", base, POET)
    upload = ("adapters", "upload", str(folder), "--alias", "live", "--json")
    uploaded = answer(motet(*upload, MOTET_API_KEY=secret))
    assert uploaded["id"] == "poet@1"
    assert "poet@1" in motet("adapters", "show", "poet", "--tenant", name).stdout  # as an operator
    assert "poet" in motet("adapters", "list", MOTET_API_KEY=secret).stdout
    assert answer(motet("adapters", "delete", "poet", "--json", MOTET_API_KEY=secret))["deleted"]
    assert "poet" in motet("adapters", "retired", "--tenant", name).stdout
    assert "purges_at" in motet("adapters", "retired", "poet", "--tenant", name).stdout
    back = answer(motet("adapters", "restore", "poet", "--aliases", "--tenant", name, "--json"))
    assert back["aliases"] == {"live": 1}
    purged = answer(motet("adapters", "purge", "poet@1", "--confirm", "poet@1", "--tenant", name, "--json"))
    assert (purged["state"], purged["num_purged"]) == ("purged", 1)
    checked = json.loads(motet("adapters", "fsck", "--json").stdout)
    assert (checked["state"], checked["found"]["missing"]) == ("done", 0)
    assert answer(motet("usage", "--json", MOTET_API_KEY=secret))["requests"] == 0

    (key,) = answer(motet("keys", "list", "--tenant", name, "--json"))
    bounded = (
        "--model",
        "poet",
        "--network",
        "127.0.0.0/8",
        "--service-class",
        "batch",
        "--max-parallel",
        "2",
    )
    updated = answer(motet("keys", "update", key["id"], "--tenant", name, *bounded, "--json"))
    assert (updated["allowed_networks"], updated["service_class"]) == (["127.0.0.0/8"], "batch")
    lifted = ("--network", "none", "--max-parallel", "none")
    updated = answer(motet("keys", "update", key["id"], "--tenant", name, *lifted, "--json"))
    assert (updated["allowed_networks"], updated["max_parallel"]) == (None, None)
    assert updated["allowed_models"] == ["poet"]
    rotated = answer(motet("keys", "rotate", key["id"], "--tenant", name, "--overlap-s", "600", "--json"))
    assert motet("adapters", "list", MOTET_API_KEY=secret).returncode == 0
    assert motet("adapters", "list", MOTET_API_KEY=rotated["secret"]).returncode == 0
    answer(motet("keys", "end-previous", key["id"], "--tenant", name, "--json"))
    assert motet("adapters", "list", MOTET_API_KEY=secret).returncode == 1
    answer(motet("keys", "revoke", key["id"], "--tenant", name, "--json"))
    refused = motet("adapters", "list", MOTET_API_KEY=secret)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "motet: Incorrect API key provided. (401, invalid_api_key)\n"


def test_members_from_the_first_to_the_last(motet: Motet) -> None:
    name, email = f"cli-{uuid4().hex[:8]}", f"{uuid4().hex[:8]}@example.com"
    answer(motet("tenants", "create", name, "--json"))
    there = (email, "--tenant", name)
    assert answer(motet("members", "add", *there, "--role", "viewer", "--json"))["role"] == "viewer"
    assert email in motet("members", "list", "--tenant", name).stdout
    made = answer(motet("members", "create-token", *there, "--name", "laptop", "--json"))
    mine = {"MOTET_ADMIN_TOKEN": made["secret"]}
    assert [one["name"] for one in answer(motet("tenants", "list", "--json", **mine))] == [name]
    assert "may not do this" in motet("keys", "list", "--tenant", name, **mine).stderr
    answer(motet("members", "set-role", *there, "--role", "developer", "--json"))
    assert answer(motet("keys", "list", "--tenant", name, "--json", **mine)) == []
    assert motet("members", "set-password", *there, MOTET_MEMBER_PASSWORD="a" * 12).stdout == "set\n"
    assert made["token"]["id"] in motet("members", "tokens", *there).stdout
    answer(motet("members", "revoke-token", email, made["token"]["id"], "--tenant", name, "--json"))
    answer(motet("members", "remove", *there, "--json"))
    assert motet("members", "remove", *there).stderr == f"motet: '{email}' is no member of {name}.\n"


@pytest.mark.parametrize(
    ("arguments", "more", "said"),
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
    motet_process: Motet, arguments: tuple[str, ...], more: dict[str, str], said: str
) -> None:
    done = motet_process(*arguments, **more)
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
    held = answer(motet("billing", "price", "--tenant", tenant, "--adapter", "any", "--json"))
    assert [held["winner"]["model"], Decimal(held["winner"]["input"])] == ["any_adapter", 1]
    made = motet("usage", "export", "--out", str(tmp_path / "files"), MOTET_API_KEY=key)
    assert made.returncode == 0, made.stderr
    (export,) = answer(motet("billing", "exports", "--tenant", tenant, "--json"))
    assert export["state"] == "done"
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
    receipt = motet("usage", "receipt", answered.headers["x-request-id"], "--json", MOTET_API_KEY=key)
    told = answer(receipt)
    assert (told["status"], told["receipt"]) == ("final", answered.headers["x-motet-receipt"])
    (tmp_path / "receipts").write_text(receipt.stdout)
    (tmp_path / "keys").write_text(motet("usage", "receipt-keys", "--json", MOTET_API_KEY=key).stdout)
    held = ("--keys", str(tmp_path / "keys"), "--export", str(tmp_path / "files"), "--whole")
    verified = motet("usage", "verify", str(tmp_path / "receipts"), *held)
    assert verified.returncode == 0, verified.stderr


def test_webhooks_are_set_up_and_tried(motet: Motet) -> None:
    """Under a real leader: a name that no server has is tried, and the log says so."""
    tenant = answer(motet("tenants", "create", f"told-{uuid4().hex[:8]}", "--json"))["name"]
    of = ("--tenant", tenant, "--json")
    made = answer(motet("webhooks", "create", "https://hooks.invalid/motet", *of))
    hook = made["endpoint"]["id"]
    assert answer(motet("webhooks", "rotate", hook, *of))["secret"] != made["secret"]
    assert answer(motet("webhooks", "show", hook, *of))["url"] == "https://hooks.invalid/motet"
    sent = answer(motet("webhooks", "ping", hook, *of))
    until = time.monotonic() + 30
    while not (log := answer(motet("webhooks", "deliveries", hook, *of)))[0]["attempts"]:
        assert time.monotonic() < until, log
        time.sleep(0.5)
    assert (log[0]["id"], log[0]["last_error"]) == (sent["id"], "its name can't be resolved")
    assert answer(motet("webhooks", "set", hook, "--status", "disabled", *of))["status"] == "disabled"
    answer(motet("webhooks", "delete", hook, *of))
    assert answer(motet("webhooks", "list", *of)) == []


def test_replicas_from_adding_one_to_removing_it(motet: Motet, tmp_path: Path) -> None:
    until = time.monotonic() + 30
    listed = answer(motet("replicas", "list", "--json"))
    while not any(one["health"] == "ready" for one in listed):  # as the worker that answers knows them
        assert time.monotonic() < until, listed
        listed = answer(motet("replicas", "list", "--json"))
    # a platform that was started anew may list replicas of before, at addresses that are nobody's now
    assert {(one["source"], one["state"]) for one in listed} == {("listed", "up")}
    url = "http://127.0.0.1:9"  # where nobody listens
    made = answer(motet("replicas", "add", url, "--pool", "long", "--json"))
    assert (made["url"], made["pools"], made["own_token"]) == (url, ["long"], False)
    assert answer(motet("replicas", "set-pools", url, "--pool", "a", "--pool", "b", "--json"))["pools"] == [
        "a",
        "b",
    ]
    token = tmp_path / "token"
    token.write_text("token-of-this-replica\n")
    assert (
        answer(motet("replicas", "rotate-token", url, "--token-file", str(token), "--json"))["token"] is None
    )
    assert len(answer(motet("replicas", "rotate-token", made["id"], "--json"))["token"]) > 40
    assert answer(motet("replicas", "drain", url, "--wait", "1", "--json"))["state"] == "draining"
    assert answer(motet("replicas", "drain", url, "--undo", "--json"))["state"] == "up"
    assert answer(motet("replicas", "show", url, "--json"))["own_token"]
    assert answer(motet("replicas", "remove", url, "--json"))["state"] == "down"
    gone = motet("replicas", "show", url)
    assert (gone.returncode, gone.stderr) == (1, f"motet: There is no replica '{url}'.\n")
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps([{"pool": "general", "min_prompt_tokens": 100_000}]))
    assert answer(motet("replicas", "rules", "--set", str(rules), "--json"))[0]["pool"] == "general"
    rules.write_text("[]")
    assert answer(motet("replicas", "rules", "--set", str(rules), "--json")) == []
    until = time.monotonic() + 30
    while url in (weights := answer(motet("replicas", "weights", "--json")))["seen"]:
        assert time.monotonic() < until, weights  # each worker learns of it within its next look
        time.sleep(0.1)
    assert weights["seen"].keys() <= {one["url"] for one in listed}
    assert weights["seen"]


def test_a_tenant_that_leaves_and_the_log_that_tells_of_it(motet: Motet, tmp_path: Path) -> None:
    name = f"leaver-{uuid4().hex[:8]}"
    tenant = answer(motet("tenants", "create", name, "--json"))
    assert answer(motet("tenants", "suspend", name, "--reason", "unpaid", "--json"))["status"] == "suspended"
    assert answer(motet("tenants", "resume", name, "--json"))["status"] == "active"
    rules = answer(motet("tenants", "retention", name, "--keep", "ended_keys=30", "--json"))["rules"]
    assert {rule["kind"]: rule["days"] for rule in rules}["ended_keys"] == 30
    wrong = motet("tenants", "offboard", name, "--confirm", "somebody")
    assert (wrong.returncode, "confirmation_mismatch" in wrong.stderr) == (1, True)
    assert answer(motet("tenants", "offboard", name, "--confirm", name, "--json"))["state"] == "waiting"
    assert answer(motet("tenants", "undo-offboard", name, "--json"))["lifecycle"] == "active"
    assert "undone" in motet("tenants", "offboarding", name).stdout

    listed = answer(motet("audit", "list", "--tenant", name, "--action", "tenant.off", "--json"))
    assert [event["action"] for event in listed] == ["tenant.offboard_undo", "tenant.offboard"]
    assert f"{tenant['id']}: whole" in motet("audit", "verify", "--tenant", name).stdout
    kept, file = tmp_path / "heads.jsonl", tmp_path / "audit.jsonl"
    kept.write_text(motet("audit", "heads").stdout)
    assert "platform: whole" in motet("audit", "verify", "--all", "--kept", str(kept)).stdout
    assert motet("audit", "export", "--tenant", name, "--out", str(file)).returncode == 0
    assert "whole" in motet("audit", "verify", "--file", str(file), "--kept", str(kept)).stdout
    file.write_text(file.read_text().replace("unpaid", "gratis"))
    broken = motet("audit", "verify", "--file", str(file))
    assert broken.returncode == 1
    assert ": content" in broken.stderr
