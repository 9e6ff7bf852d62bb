"""Secrets that are known beforehand, sent through every route in every place where one could be sent; and a
search for them in all that the platform leaves behind: files, tables, Redis, metrics, command lines,
errors."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from uuid import uuid4

import httpx
import psutil
import sqlalchemy as sa
from redis import Redis
from sqlalchemy.ext.asyncio import create_async_engine

from gateway.api_keys.authenticator import API_KEY
from migrations import async_url
from tests.rig.rig import EMAIL, PASSWORD, Rig

PROMPT = "the heron on the third weir"
PRESIGNED = re.compile(rb"X-Amz-Signature=[0-9a-f]{16}", re.IGNORECASE)
HOLDERS = frozenset({"secrets.json", "redis.conf", "demo.json"})
"""Files whose purpose it is to hold secrets, readable by their owner only."""


@dataclass(frozen=True)
class Planted:
    """What must be found nowhere, by what it is. Of an API key, the part behind its public id."""

    secrets: dict[str, str]
    people: dict[str, dict[str, str]]  # headers by who sends them
    tenant: str
    key_id: str
    raw: tuple[str, ...]  # whole credentials, as a client would misplace them


@dataclass
class Answers:
    """Bodies of answers that must not tell a secret, with those that their request misplaced itself."""

    number: int = 0
    statuses: dict[int, int] = field(default_factory=dict)
    errors: list[tuple[str, bytes, frozenset[str]]] = field(default_factory=list)

    def note(self, answer: httpx.Response, sent: frozenset[str] = frozenset()) -> None:
        self.number += 1
        self.statuses[answer.status_code] = self.statuses.get(answer.status_code, 0) + 1
        if answer.status_code >= 400:
            told = answer.content + repr(answer.headers.raw).encode()
            self.errors.append((f"{answer.request.method} {answer.request.url.path}", told, sent))

    def ask(self, base_url: str, headers: Mapping[str, str]) -> None:
        """What reaches Redis and, where the key is not known, PostgreSQL."""
        for path in ("/v1/models", "/v1/adapters", "/readyz", "/v1/usage"):
            self.note(httpx.get(f"{base_url}{path}", headers=dict(headers), timeout=60))


def plant(rig: Rig, admin: httpx.Client) -> Planted:
    """Keys of all states, a session, and whatever the platform was started with."""
    owner = rig.tenant()
    revoked = rig.key_of(admin, owner.tenant, name="revoked")
    admin.delete(f"/api/v1/tenants/{owner.tenant}/keys/{revoked.key_id}")
    never = API_KEY.mint().text
    cookie, csrf = _log_in(rig)
    plan = rig.plan
    assert plan is not None
    urls = {
        "owner's database password": plan.database.owner,
        "application's database password": plan.database.app,
        "system's database password": plan.database.system,
        "Redis password": rig.redis_url,
    }
    secrets = {
        "API key": secret_part(owner.secret),
        "revoked API key": secret_part(revoked.secret),
        "key that was never issued": secret_part(never),
        "operator's token": secret_part(rig.token),
        "operator's password": PASSWORD,
        "session cookie": cookie,
        "CSRF token": csrf,
        "pepper": plan.pepper,
        "replica's token": plan.engines.token,
        "prompt": PROMPT,
        **{name: unquote(urlsplit(url).password or "") for name, url in urls.items()},
        **{name.lower(): value for name, value in rig.shape.settings.items() if _is_secret(name)},
    }
    assert all(len(secret) > 8 for secret in secrets.values()), [n for n, s in secrets.items() if len(s) <= 8]
    people = {
        "nobody": {},
        "tenant": owner.headers,
        "revoked": revoked.headers,
        "stranger": {"authorization": f"Bearer {never}"},
        "operator": rig.admin_headers,
        "browser": {"cookie": f"motet_session={cookie}", "x-csrf-token": csrf},
        "confused": {"authorization": f"Basic {rig.token}", "x-api-key": owner.secret},
    }
    raw = (owner.secret, rig.token, cookie)
    return Planted(secrets, people, owner.tenant, owner.key_id, raw)


def _log_in(rig: Rig) -> tuple[str, str]:
    wrong = {"email": EMAIL, "password": PASSWORD + "!"}
    httpx.post(f"{rig.base_url}/api/v1/session", json=wrong, timeout=60)
    right = {"email": EMAIL, "password": PASSWORD}
    opened = httpx.post(f"{rig.base_url}/api/v1/session", json=right, timeout=60)
    assert opened.status_code == 201, opened.text
    return opened.cookies["motet_session"], opened.json()["csrf_token"]


def secret_part(text: str) -> str:
    """Of an API key or token, what stands behind its public id."""
    return re.sub(r"^mta?_[a-z2-7]{12}_", "", text)


def _is_secret(name: str) -> bool:
    return name.endswith(("_TOKEN", "_KEY", "_PREVIOUS", "SECRET_ACCESS_KEY"))


def send_everywhere(rig: Rig, planted: Planted, *, everybody: bool) -> Answers:
    """Each operation of the document as each person, or only as the one whom it is for: as it is meant, and
    with a credential in its path, its query and its body."""
    answers = Answers()
    with httpx.Client(base_url=rig.base_url, timeout=60) as http:
        document = http.get("/openapi.json").json()
        for path, item in document["paths"].items():
            for method in (name for name in item if name in {"get", "post", "put", "patch", "delete"}):
                meant_for = "browser" if path.startswith("/api/") else "tenant"
                for name in planted.people if everybody else [meant_for]:
                    _send(http, method, path, planted.people[name], planted, answers)
        _make(http, planted, answers)
        _infer(http, rig, planted, answers)
    return answers


def _make(http: httpx.Client, planted: Planted, answers: Answers) -> None:
    """What succeeds, and leaves rows."""
    browser, tenant = planted.people["browser"], planted.people["tenant"]
    name = {"name": f"made-{uuid4().hex[:12]}"}
    answers.note(http.post("/api/v1/tenants", json=name, headers=browser))
    answers.note(http.post(f"/api/v1/tenants/{planted.tenant}/keys", json=name, headers=browser))
    answers.note(http.post("/v1/billing/exports", json={"month": "2026-01"}, headers=tenant))
    assert answers.statuses.get(201, 0) >= 2


def _send(
    http: httpx.Client,
    method: str,
    path: str,
    headers: Mapping[str, str],
    planted: Planted,
    answers: Answers,
) -> None:
    if (method, path) == ("delete", "/api/v1/session"):  # once it is closed the session is no secret
        headers = {name: value for name, value in headers.items() if name != "cookie"}
    ids = {"tenant": planted.tenant, "key_id": "a" * 12, "number": "1", "version": "1"}
    if path.endswith(("/suspend", "/offboarding")):  # it is still needed
        ids["tenant"] = str(uuid4())
    meant = re.sub(r"\{(\w+)\}", lambda match: ids.get(match[1], "nobody"), path)
    answers.note(http.request(method, meant, headers=headers, json={} if method != "get" else None))
    raw = planted.raw[0]
    misplaced = re.sub(r"\{(\w+)\}", quote(raw), path)
    sent = frozenset(secret_part(each) for each in planted.raw)
    for body in ({"model": raw, "api_key": raw, "name": raw, "email": raw, "password": raw}, [raw]):
        content = json.dumps(body) if method != "get" else None
        typed = {**headers, "content-type": "application/json"}
        query = {"api_key": planted.raw[1], "after": raw, "month": raw, "limit": raw}
        answers.note(http.request(method, misplaced, params=query, headers=typed, content=content), sent)


def _infer(http: httpx.Client, rig: Rig, planted: Planted, answers: Answers) -> None:
    """What succeeds, and what is kept of it: with a cache, with a key for retries, as a stream."""
    with rig.admin() as admin:
        caches = f"/api/v1/tenants/{planted.tenant}/caches"
        assert admin.patch(caches, json={"response_cache": "greedy"}).status_code == 200
    for stream in (False, True):
        for more in ({}, {"idempotency-key": uuid4().hex}):
            for _ in range(2):
                body = {
                    "model": rig.base_name,
                    "messages": [{"role": "user", "content": PROMPT}],
                    "max_tokens": 3,
                    "temperature": 0,
                    "stream": stream,
                }
                headers = {**planted.people["tenant"], **more}
                answer = http.post("/v1/chat/completions", json=body, headers=headers)
                assert answer.status_code == 200, answer.text
                answers.note(answer)


# The search


def forms(secret: str) -> set[bytes]:
    """How a secret may be written."""
    raw = secret.encode()
    encoded = base64.b64encode(raw).rstrip(b"=")[:-2]
    return {raw, quote(secret).encode(), raw.hex().encode(), encoded, json.dumps(secret)[1:-1].encode()}


def found_in(data: bytes, secrets: Mapping[str, str]) -> list[str]:
    """The names of the secrets that the data holds, in any form; a presigned URL is one."""
    names = [name for name, secret in secrets.items() if any(form in data for form in forms(secret))]
    return names + (["presigned URL"] if PRESIGNED.search(data) else [])


def in_files(
    folder: Path, secrets: Mapping[str, str], without: frozenset[str] = frozenset()
) -> tuple[int, list[str]]:
    """Number of files looked at, and what they hold; of the folder's entries, those in `without` are left
    out. Files that are there to hold secrets must be private."""
    looked, found = 0, []
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.is_symlink() or path.relative_to(folder).parts[0] in without:
            continue
        looked += 1
        names = found_in(path.read_bytes(), secrets)
        if names and path.name in HOLDERS and not path.stat().st_mode & 0o077:
            continue
        found += [f"{path.relative_to(folder)}: {name}" for name in names]
    return looked, found


async def in_tables(superuser_url: str, secrets: Mapping[str, str]) -> tuple[int, list[str]]:
    """Every row of every table as text, whoever owns it."""
    engine = create_async_engine(async_url(superuser_url))
    tables, found = 0, []
    try:
        async with engine.connect() as connection:
            names = sa.text(
                "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables"
                " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
            )
            for (table,) in (await connection.execute(names)).all():
                tables += 1
                rows = (await connection.execute(sa.text(f"SELECT t::text FROM {table} t"))).all()
                data = "\n".join(row[0] for row in rows).encode()
                found += [f"{table}: {name}" for name in found_in(data, secrets)]
    finally:
        await engine.dispose()
    return tables, found


def in_redis(url: str, secrets: Mapping[str, str]) -> tuple[int, list[str]]:
    """Every key and value."""
    with Redis.from_url(url) as redis:
        keys, found = 0, []
        for key in redis.scan_iter(count=1_000):
            keys += 1
            data = b"\n".join([key, *_values(redis, key)])
            found += [f"{key!r}: {name}" for name in found_in(data, secrets)]
    return keys, found


def _values(redis: Redis, key: bytes) -> Iterator[bytes]:
    kind = redis.type(key)
    assert isinstance(kind, bytes)
    read: dict[bytes, Any] = {
        b"string": lambda: [redis.get(key) or b""],
        b"hash": lambda: [part for pair in redis.hgetall(key).items() for part in pair],
        b"zset": lambda: redis.zrange(key, 0, -1),
        b"set": lambda: redis.smembers(key),
        b"list": lambda: redis.lrange(key, 0, -1),
        b"none": list,  # it ran out meanwhile
    }
    yield from read[kind]()


def in_command_lines(pids: Iterable[int], secrets: Mapping[str, str]) -> list[str]:
    """What `ps` shows everybody."""
    found = []
    for pid in pids:
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):  # it ended meanwhile
                line = "\0".join(process.cmdline()).encode()
                found += [f"{process.name()}: {name}" for name in found_in(line, secrets)]
    return found


def in_answers(answers: Answers, secrets: Mapping[str, str]) -> list[str]:
    """Errors that tell a secret which their own request had not misplaced."""
    return [
        f"{what}: {name}"
        for what, told, sent in answers.errors
        for name in found_in(told, {n: s for n, s in secrets.items() if s not in sent})
    ]


def superuser_url(home: Path, url: str) -> str:
    """Of the embedded server in `home`, for the database that `url` names."""
    password = json.loads((home / "secrets.json").read_text())["postgres"]
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"postgres:{quote(password)}@{parts.hostname}:{parts.port}"))
