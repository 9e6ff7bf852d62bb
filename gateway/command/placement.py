"""`motet placement`: where adapters are wanted, where they are, and what moves."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.command.access import tenant_id
from gateway.command.api import segment
from gateway.command.following import followed
from gateway.command.options import AsJson, MaybeTenant, access_of, connect
from gateway.command.output import says_why, show, show_list

placement = typer.Typer(
    no_args_is_help=True, callback=connect, help="See where adapters lie, and have them lie ready."
)

PATH = "/api/v1/placement"
PLACED = ["adapter", "version", "tenant", "wanted", "held", "homes"]
MOVES = ["at", "adapter", "replica", "before", "after"]
Name = Annotated[str, typer.Argument(help="The adapter's name.")]


@placement.command("list")
@says_why
def list_placed(
    context: typer.Context,
    name: Annotated[str | None, typer.Option(help="What the adapter's name begins with.")] = None,
    replica: Annotated[str | None, typer.Option(help="URL of one that holds it.")] = None,
    tier: Annotated[str | None, typer.Option(help="device or host.")] = None,
    wanted: Annotated[
        bool | None, typer.Option("--wanted/--unwanted", help="With a placement, or without.")
    ] = None,
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """All adapters that are wanted or lie in memory anywhere (operators)."""
    api = access_of(context).admin()
    of = None if tenant is None else tenant_id(api, tenant)
    asked = None if wanted is None else str(wanted).lower()
    rows = api.pages(PATH, name_prefix=name, replica=replica, tier=tier, wanted=asked, tenant=of)
    show_list(rows if as_json else map(_row, rows), PLACED, as_json)


@placement.command("moves")
@says_why
def list_moves(
    context: typer.Context,
    follow: Annotated[bool, typer.Option(help="Go on as they happen, until you stop it.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 50,
    as_json: AsJson = False,
) -> None:
    """Loads and evictions as they happened lately, newest first (operators)."""
    api = access_of(context).admin()
    found = api.get(f"{PATH}/moves", limit=limit)["data"]
    show_list(found, MOVES, as_json)
    if not follow:
        return
    last = found[0]["at"] if found else None
    shown = {_identity(move) for move in found}
    for event, change in followed(api, "/api/v1/changes"):
        if event == "missed" or change["kind"] == "move":
            fresh = api.get(f"{PATH}/moves", since=last, limit=200)["data"]
            new = [move for move in reversed(fresh) if _identity(move) not in shown]
            if new:
                show_list(new, MOVES, as_json)
                last = new[-1]["at"]
            shown = {_identity(move) for move in fresh}


@placement.command("show")
@says_why
def show_placement(
    context: typer.Context, name: Name, tenant: MaybeTenant = None, as_json: AsJson = False
) -> None:
    """Where one adapter is wanted, and beside it where it is."""
    api, root = access_of(context).of_tenant(tenant)
    show(api.get(_of(root, name)), as_json)


@placement.command("pin")
@says_why
def pin(
    context: typer.Context,
    name: Name,
    replicas: Annotated[int, typer.Option(min=1, max=256, help="That hold it, at least.")] = 1,
    tier: Annotated[str, typer.Option(help="host: in memory; device: in a slot.")] = "host",
    version: Annotated[int | None, typer.Option(min=1, help="Default: whichever `live` is.")] = None,
    bring_back: Annotated[
        bool, typer.Option("--bring-back", help="Not pinned: brought back when it was pushed out.")
    ] = False,
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """Have an adapter lie ready, whoever asks for it."""
    api, root = access_of(context).of_tenant(tenant)
    wanted = {"replicas": replicas, "pinned": not bring_back, "tier": tier, "version": version}
    show(api.put(_of(root, name), wanted), as_json)


@placement.command("unpin")
@says_why
def unpin(context: typer.Context, name: Name, tenant: MaybeTenant = None, as_json: AsJson = False) -> None:
    """Leave an adapter to traffic again."""
    api, root = access_of(context).of_tenant(tenant)
    show(api.delete(_of(root, name)), as_json)


@placement.command("quota")
@says_why
def quota(
    context: typer.Context,
    slots: Annotated[int | None, typer.Option(min=0, help="Over all replicas (operators).")] = None,
    size: Annotated[int | None, typer.Option("--bytes", min=0, help="Over all replicas (operators).")] = None,
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """How much a tenant may place; with --slots and --bytes, say so."""
    api, root = access_of(context).of_tenant(tenant)
    path = f"{root}/placement-quota"
    found = api.get(path)
    if slots is not None or size is not None:
        wanted = {
            "slots": found["slots"] if slots is None else slots,
            "bytes": found["bytes"] if size is None else size,
        }
        found = api.put(path, wanted)
    show(found, as_json)


def _of(root: str, name: str) -> str:
    return f"{root}/adapters/{segment(name)}/placement"


def _row(placed: dict[str, Any]) -> dict[str, Any]:
    held = [f"{each['replica']} ({each['tier']})" for each in placed["held"]]
    return {**placed, "held": held}


def _identity(move: dict[str, Any]) -> tuple[str, str, str]:
    return move["at"], move["replica"], move["artefact"]
