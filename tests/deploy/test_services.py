"""Embedded services: they start, come back after a kill, and their roles can't pass row-level security."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest
from redis.asyncio import Redis

from deploy.local.roles import query
from deploy.local.services import DatabaseUrls, EmbeddedPostgres, EmbeddedRedis
from tests.running_platform import survivors


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """One that these tests may kill."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("home"))
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("role", ["owner", "app", "system"])
async def test_no_role_can_bypass_row_level_security(postgres: DatabaseUrls, role: str) -> None:
    connection = await asyncpg.connect(getattr(postgres, role))
    try:
        row = await connection.fetchrow(
            "select rolsuper, rolbypassrls, rolcreaterole, rolcreatedb"
            " from pg_roles where rolname = current_user"
        )
        members = await connection.fetchval(
            "select count(*) from pg_auth_members m join pg_roles r on r.oid = m.member"
            " where r.rolname = current_user"
        )
    finally:
        await connection.close()
    assert row is not None
    assert tuple(row) == (False, False, False, False)
    assert members == 0  # no other role to become


async def test_a_wrong_password_is_refused(postgres: DatabaseUrls) -> None:
    wrong = postgres.app.replace("motet_app:", "motet_app:x")
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(wrong)


async def test_redis_wants_its_password(redis_url: str) -> None:
    async with Redis.from_url(redis_url) as client:
        assert await client.ping()
    assert ":@" not in redis_url


def test_commits_outlive_a_kill(server: EmbeddedPostgres) -> None:
    query(in_motet(server), "create table kept as select 42 as answer")
    os.kill(server.child.pid, signal.SIGKILL)
    urls = server.start()
    assert query(in_motet(server), "select answer from kept") == "42"
    assert query(urls.app, "select current_user") == "motet_app"


def test_a_restart_keeps_the_port(server: EmbeddedPostgres) -> None:
    port = server.port
    server.child.kill()
    server.restart()
    assert server.port == port


def test_a_stale_pid_file_of_a_strangers_process_is_passed_over(server: EmbeddedPostgres) -> None:
    server.stop()
    pid_file = server.data / "postmaster.pid"
    pid_file.write_text(f"{os.getpid()}\n{server.data}\n0\n0\n\n\n\n\n")
    server.start()
    assert query(server.superuser_url, "select 1") == "1"


def test_redis_counters_outlive_a_restart(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path)
    try:
        server.start()
        _redis(server, b"SET kept 42\r\n")
        server.stop()
        server.start()
        assert b"42" in _redis(server, b"GET kept\r\n")
    finally:
        server.stop()


def test_servers_die_with_their_parent(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from deploy.local.services import EmbeddedPostgres, EmbeddedRedis
        postgres, redis = EmbeddedPostgres(Path(sys.argv[1])), EmbeddedRedis(Path(sys.argv[1]))
        postgres.start(), redis.start()
        print(postgres.child.pid, redis.child.pid, flush=True)
        time.sleep(60)
        """
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        servers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        parent.kill()
    began = time.monotonic()
    assert survivors(servers, 8) == []
    assert time.monotonic() - began < 8


def in_motet(server: EmbeddedPostgres) -> str:
    return server.superuser_url.removesuffix("postgres") + "motet"


def _redis(server: EmbeddedRedis, command: bytes) -> bytes:
    password = server.url.split(":")[2].split("@")[0]
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(f"AUTH {password}\r\n".encode())
        assert connection.recv(64) == b"+OK\r\n"
        connection.sendall(command)
        return connection.recv(4096)
