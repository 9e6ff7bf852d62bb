"""`motet replicas`: list, register, drain, remove, tokens, pools, weights."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.command.api import Api, CommandFailed
from gateway.command.options import AsJson, access_of, connect
from gateway.command.output import says_why, show, show_list

replicas = typer.Typer(
    no_args_is_help=True, callback=connect, help="List, register, drain and remove replicas."
)

PATH = "/api/v1/replicas"
COLUMNS = ["url", "id", "state", "source", "health", "pools", "breaker", "in_flight", "in_flight_tokens"]
RULES = ["pool", "fallback", "min_prompt_tokens", "min_answer_tokens", "service_class", "tenant", "adapter"]
LOOK_S = 1.0
Name = Annotated[str, typer.Argument(metavar="REPLICA", help="Its URL or id.")]
MaybePools = Annotated[list[str] | None, typer.Option("--pool", help="Repeat for several.")]


@replicas.command("list")
@says_why
def list_replicas(context: typer.Context, as_json: AsJson = False) -> None:
    """All replicas, as one worker sees them."""
    show_list(_all(access_of(context).admin()), COLUMNS, as_json)


@replicas.command("show")
@says_why
def show_replica(context: typer.Context, replica: Name, as_json: AsJson = False) -> None:
    """One replica."""
    show(_find(access_of(context).admin(), replica), as_json)


@replicas.command("add")
@says_why
def add_replica(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="How gateways reach it.")],
    pool: MaybePools = None,
    token_file: Annotated[
        Path | None, typer.Option(help="Holds its own token. Default: the shared one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Register a replica."""
    wanted: dict[str, Any] = {"url": url, "pools": pool or ["general"]}
    if token_file is not None:
        wanted["token"] = _token_of(token_file)
    show(access_of(context).admin().post(PATH, wanted), as_json)


@replicas.command("drain")
@says_why
def drain_replica(
    context: typer.Context,
    replica: Name,
    wait_s: Annotated[
        float, typer.Option("--wait", min=0, help="Seconds to wait until nothing runs there.")
    ] = 0,
    undo: Annotated[bool, typer.Option(help="Take it back instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send nothing new to a replica; what runs there ends there."""
    api = access_of(context).admin()
    path = f"{PATH}/{_find(api, replica)['id']}"
    found = api.patch(path, {"state": "up" if undo else "draining"})
    until = time.monotonic() + wait_s
    while not undo and found["in_flight"] and time.monotonic() < until:
        time.sleep(LOOK_S)
        found = api.get(path)
    if wait_s and not undo and found["in_flight"]:
        raise CommandFailed(f"{found['in_flight']} requests still run there after {wait_s:g} s.")
    show(found, as_json)


@replicas.command("set-pools")
@says_why
def set_pools(
    context: typer.Context, replica: Name, pool: MaybePools = None, as_json: AsJson = False
) -> None:
    """Name the pools that a replica is in."""
    api = access_of(context).admin()
    show(api.patch(f"{PATH}/{_find(api, replica)['id']}", {"pools": pool or ["general"]}), as_json)


@replicas.command("remove")
@says_why
def remove_replica(context: typer.Context, replica: Name, as_json: AsJson = False) -> None:
    """Remove a replica. Its usage is still read for a day."""
    api = access_of(context).admin()
    show(api.delete(f"{PATH}/{_find(api, replica)['id']}"), as_json)


@replicas.command("rotate-token")
@says_why
def rotate_token(
    context: typer.Context,
    replica: Name,
    token_file: Annotated[
        Path | None, typer.Option(help="Holds the new token. Default: one is made.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change a replica's token: the new one is tried first, the one before where it is refused."""
    api = access_of(context).admin()
    wanted = {} if token_file is None else {"token": _token_of(token_file)}
    made = api.post(f"{PATH}/{_find(api, replica)['id']}/token", wanted)
    show(made if as_json else {"token": made["token"], **made["replica"]}, as_json)


@replicas.command("rules")
@says_why
def pool_rules(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Option("--set", help="JSON: a list of rules, as in docs/API.md.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show which requests go to which pool, or replace the rules."""
    api = access_of(context).admin()
    if file is None:
        found = api.get("/api/v1/pool-rules")
    else:
        try:
            found = api.put("/api/v1/pool-rules", {"rules": json.loads(file.read_text())})
        except (OSError, ValueError) as error:
            raise CommandFailed(f"{file} can't be read as JSON: {error}.") from error
    show_list(found["rules"], RULES, as_json)


@replicas.command("weights")
@says_why
def base_weights(
    context: typer.Context,
    admit: Annotated[list[str] | None, typer.Option(help="Digest; all that may serve: repeat.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show which weights may serve the base, or say so."""
    api = access_of(context).admin()
    path = "/api/v1/base-weights"
    show(api.put(path, {"digests": admit}) if admit else api.get(path), as_json)


def _all(api: Api) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = api.get(PATH, limit=200, cursor=cursor)
        found += page["data"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def _find(api: Api, name: str) -> dict[str, Any]:
    """Raises `CommandFailed`."""
    wanted = name.rstrip("/")
    for replica in _all(api):
        if wanted in (replica["url"], replica["id"]):
            return replica
    raise CommandFailed(f"There is no replica '{name}'.")


def _token_of(file: Path) -> str:
    """Out of a file, so that it stands in no list of processes."""
    try:
        return file.read_text().strip()
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{file} can't be read: {error}.") from error
