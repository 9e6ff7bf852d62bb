"""`motet audit`: read the log, walk its hash chains, keep their heads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar
from uuid import UUID

import typer

from gateway.audit.chain import PLATFORM, Broken, Head, Link, Walk
from gateway.command.access import tenant_id
from gateway.command.api import Api, CommandFailed
from gateway.command.options import AsJson, MaybeTenant, access_of, connect
from gateway.command.output import says_why, show_list

audit = typer.Typer(no_args_is_help=True, callback=connect, help="Read and verify the audit log.")

T = TypeVar("T")

COLUMNS = ["created_at", "actor", "action", "target", "tenant", "details"]


@audit.command("list")
@says_why
def list_events(
    context: typer.Context,
    tenant: MaybeTenant = None,
    actor: Annotated[str | None, typer.Option(help="As admin:<email>.")] = None,
    action: Annotated[str | None, typer.Option(help="What it begins with, as 'tenant.'.")] = None,
    since: Annotated[str | None, typer.Option(help="RFC 3339.")] = None,
    until: Annotated[str | None, typer.Option(help="RFC 3339, exclusive.")] = None,
    as_json: AsJson = False,
) -> None:
    """What was changed, newest first."""
    api = access_of(context).admin()
    filters = {"actor": actor, "action": action, "since": since, "until": until}
    show_list(api.pages(_root(api, tenant), **filters), COLUMNS, as_json)


@audit.command("heads")
@says_why
def list_heads(context: typer.Context) -> None:
    """Where each hash chain ends, a JSON line each. Keep them where the database's owner can't write."""
    for head in access_of(context).admin().pages("/api/v1/audit/heads"):
        typer.echo(json.dumps(head))


@audit.command("export")
@says_why
def export(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="File to write.")],
    tenant: MaybeTenant = None,
) -> None:
    """A chain as JSON lines, which `motet audit verify --file` checks without a server."""
    api = access_of(context).admin()
    api.download(f"{_root(api, tenant)}/export", out)


@audit.command("verify")
@says_why
def verify(
    context: typer.Context,
    tenant: MaybeTenant = None,
    all_chains: Annotated[bool, typer.Option("--all", help="The platform's and every tenant's.")] = False,
    kept: Annotated[Path | None, typer.Option(help="What `motet audit heads` printed earlier.")] = None,
    file: Annotated[Path | None, typer.Option(help="An export, checked here.")] = None,
) -> None:
    """Walk hash chains; ends with code 1 and the first broken place when one does not hold."""
    heads = {} if kept is None else {head.chain: head for head in _read(kept, _head)}
    if file is not None:
        _say(*_walk_file(file, heads))
        return
    api = access_of(context).admin()
    chains = {UUID(str(head["chain"])) for head in api.pages("/api/v1/audit/heads")} if all_chains else set()
    chains |= set(heads) if all_chains else set()
    if not all_chains:
        chains = {PLATFORM if tenant is None else UUID(tenant_id(api, tenant))}
    for chain in sorted(chains):
        _say(*_walk(api, chain, heads.get(chain)))


def _root(api: Api, tenant: str | None) -> str:
    return "/api/v1/audit" if tenant is None else f"/api/v1/tenants/{tenant_id(api, tenant)}/audit"


def _walk(api: Api, chain: UUID, kept: Head | None) -> tuple[Head, Broken | None]:
    """In as many calls as it takes."""
    root = "/api/v1/audit" if chain == PLATFORM else f"/api/v1/tenants/{chain}/audit"
    given: dict[str, Any] = {} if kept is None else {"kept_seq": kept.seq, "kept_hash": kept.hash.hex()}
    after = 0
    while True:
        verdict = api.get(f"{root}/verify", after=after, **given)
        end = Head(chain, verdict["head"]["seq"], bytes.fromhex(verdict["head"]["hash"]))
        if verdict["broken"] is not None:
            event = verdict["broken"]["event"]
            where = None if event is None else UUID(event)
            return end, Broken(verdict["broken"]["seq"], where, verdict["broken"]["reason"])
        if verdict["complete"]:
            return end, None
        after = end.seq


def _walk_file(file: Path, heads: dict[UUID, Head]) -> tuple[Head, Broken | None]:
    """An export of one chain from its beginning."""
    walk: Walk | None = None
    chain = PLATFORM
    for its_chain, link in _read(file, _link):
        if walk is None:
            chain, walk = its_chain, Walk(kept=heads.get(its_chain))
        elif its_chain != chain:
            raise CommandFailed(f"{file} holds lines of two chains.")
        broken = walk.take(link)
        if broken is not None:
            return Head(chain, walk.seq, walk.last), broken
    if walk is None:
        raise CommandFailed(f"{file} holds no line.")
    return Head(chain, walk.seq, walk.last), walk.end()


def _say(end: Head, broken: Broken | None) -> None:
    name = "platform" if end.chain == PLATFORM else str(end.chain)
    if broken is not None:
        event = "" if broken.event is None else f", event {broken.event}"
        raise CommandFailed(f"the chain of {name} is broken at {broken.seq}{event}: {broken.reason}.")
    typer.echo(f"{name}: whole, {end.seq} events, head {end.hash.hex()}")


def _head(line: dict[str, Any]) -> Head:
    return Head(UUID(line["chain"]), int(line["seq"]), bytes.fromhex(line["hash"]))


def _link(line: dict[str, Any]) -> tuple[UUID, Link]:
    previous, made = bytes.fromhex(line["previous"]), bytes.fromhex(line["hash"])
    return UUID(line["chain"]), Link(int(line["seq"]), UUID(line["event"]), previous, made, line["content"])


def _read(file: Path, what: Callable[[dict[str, Any]], T]) -> Iterator[T]:
    """Line by line. Raises `CommandFailed`."""
    try:
        with file.open(encoding="utf-8") as opened:
            for line in opened:
                yield what(json.loads(line))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandFailed(f"{file} can't be read as JSON lines of a chain: {error}.") from error
