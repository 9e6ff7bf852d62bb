"""The short form of tests/acceptance/test_secrets_scan.py; and that the search finds each secret wherever it
is, so that it would have found one that the platform leaves behind."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from types import UnionType
from typing import get_args

import httpx
import pytest
import sqlalchemy as sa
from pydantic import SecretStr
from redis import Redis
from sqlalchemy.ext.asyncio import create_async_engine

from gateway.config import Settings
from migrations import async_url
from tests.rig.planted import LONG_FORM_ONLY, Planted, plant, send_everywhere
from tests.rig.rig import SECRET_SETTINGS, Rig
from tests.rig.search import (
    Answers,
    Secrets,
    forms,
    found_in,
    in_answers,
    in_command_lines,
    in_dump,
    in_files,
    in_redis,
    in_tables,
    superuser_url,
)

SHOWN = {
    "EndpointWithSecret.secret",
    "KeyCreated.secret",
    "ReceiptKeyOut.key",
    "SessionOut.csrf_token",
    "TokenChanged.token",
    "TokenCreated.secret",
}
TAKEN = {
    "LogIn.password",
    "PasswordPut.password",
    "Registration.token",
    "ReplicaCreate.token",
    "TokenChange.token",
}
"""Fields of the API that hold a secret; `plant` makes one of each. A series' key is the adapter's name."""


@pytest.fixture(scope="module")
def planted(rig: Rig) -> Planted:
    with rig.admin() as admin:
        return plant(rig, admin)


def test_no_secret_is_left_anywhere(rig: Rig, planted: Planted) -> None:
    answers = send_everywhere(rig, planted, everybody=False)
    with rig.admin() as admin:
        metrics = admin.get("/metrics").content
    files, in_home = in_files(rig.home.root, planted.secrets)
    url = superuser_url(rig.home.root, rig.database.owner)
    tables, in_database = asyncio.run(in_tables(url, planted.secrets))
    dumped, in_a_dump = in_dump(url, planted.secrets)
    keys, in_memory = in_redis(rig.redis_url, planted.secrets)
    pids = [child.pid for child in rig.children.values()]
    assert in_home == in_database == in_memory == in_a_dump == []
    assert in_command_lines(pids, planted.secrets) == []
    assert in_answers(answers, planted.secrets) == []
    assert found_in(metrics, planted.secrets) == []
    assert min(files, tables, keys, dumped) > 0
    assert {200, 401, 404} <= set(answers.statuses)
    assert 500 not in answers.statuses


def test_every_secret_that_is_planted_is_found_where_it_leaks(
    rig: Rig, planted: Planted, tmp_path: Path
) -> None:
    """Each of them at once in a log, a row, a dump, a key of Redis, a metric and an error."""
    text = {name: _as_text(secret) for name, secret in planted.secrets.items()}
    leak, names = json.dumps(text), sorted(planted.secrets)
    (tmp_path / "gateway.log").write_text(leak)
    _, logged = in_files(tmp_path, planted.secrets)
    url = superuser_url(rig.home.root, rig.database.owner)
    in_rows, dumped = asyncio.run(_leaked_into_a_table(url, leak, planted.secrets))
    with Redis.from_url(rig.redis_url) as redis:
        redis.hset("leak", mapping=text)
        _, in_memory = in_redis(rig.redis_url, planted.secrets)
        redis.delete("leak")
    answers, request = Answers(), httpx.Request("GET", "http://gateway/v1/models")
    answers.note(httpx.Response(500, text=leak, request=request))
    assert sorted(line.rpartition(": ")[2] for line in logged) == names
    assert sorted(line.rpartition(": ")[2] for line in in_rows) == names
    assert sorted(line.rpartition(": ")[2] for line in dumped) == names
    assert sorted(line.rpartition(": ")[2] for line in in_memory) == names
    assert sorted(line.rpartition(": ")[2] for line in in_answers(answers, planted.secrets)) == names
    assert sorted(found_in(f'requests{{key="{leak}"}} 1'.encode(), planted.secrets)) == names


async def _leaked_into_a_table(url: str, leak: str, secrets: Secrets) -> tuple[list[str], list[str]]:
    engine = create_async_engine(async_url(url))
    try:
        async with engine.begin() as connection:
            await connection.execute(
                sa.text("CREATE TABLE leak AS SELECT CAST(:leak AS text) AS t"), {"leak": leak}
            )
        _, rows = await in_tables(url, secrets)
        _, dumped = await asyncio.to_thread(in_dump, url, secrets)
        return rows, dumped
    finally:
        async with engine.begin() as connection:
            await connection.execute(sa.text("DROP TABLE leak"))
        await engine.dispose()


def _as_text(secret: str | bytes) -> str:
    return secret if isinstance(secret, str) else secret.hex()


def test_no_kind_of_secret_is_forgotten(rig: Rig, planted: Planted) -> None:
    """Neither a setting, nor a field of an answer that shows one."""
    settings = {name for name, each in Settings.model_fields.items() if _is_secret(each.annotation)}
    assert {name.lower() for name in SECRET_SETTINGS} <= settings
    later = {name.lower() for name in LONG_FORM_ONLY}
    assert settings - later <= set(planted.secrets), "plant it in tests/rig/planted.py"
    document = httpx.get(f"{rig.base_url}/openapi.json", timeout=60).json()
    schemas = document["components"]["schemas"]
    shown = {
        f"{name}.{field}"
        for name, schema in schemas.items()
        for field, described in schema.get("properties", {}).items()
        if field in {"secret", "token", "csrf_token", "key", "password"} and "string" in json.dumps(described)
    }
    assert shown - TAKEN - {"Series.key"} == SHOWN, "plant it in tests/rig/planted.py"


def _is_secret(annotation: object) -> bool:
    return annotation is SecretStr or (
        isinstance(annotation, UnionType) and SecretStr in get_args(annotation)
    )


def test_the_search_finds_each_form_of_a_secret(tmp_path: Path) -> None:
    secrets: dict[str, str | bytes] = {
        "a": "one of the secrets/ä",
        "b": "another secret",
        "c": b"\xfe\xffbytes?>",
    }
    for name in ("a", "c"):
        for form in forms(secrets[name]):
            assert found_in(b"..." + form + b"...", secrets) == [name], form
    for before in (b"", b"u", b"us", b"user:"):
        assert found_in(base64.b64encode(before + b"another secret" + before), secrets) == ["b"], before
    (tmp_path / "some.log").write_bytes(b"password=another secret")
    (tmp_path / "secrets.json").write_bytes(b"another secret")
    (tmp_path / "secrets.json").chmod(0o644)
    assert in_files(tmp_path, secrets) == (2, ["secrets.json: b", "some.log: b"])
    (tmp_path / "secrets.json").chmod(0o600)
    assert in_files(tmp_path, secrets) == (2, ["some.log: b"])
