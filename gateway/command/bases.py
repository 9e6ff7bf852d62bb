"""`motet bases`: what is served, and the move to other weights."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.command.api import segment
from gateway.command.options import AsJson, access_of, connect
from gateway.command.output import says_why, show, show_list

PATH = "/api/v1/bases"

bases = typer.Typer(no_args_is_help=True, callback=connect, help="List bases, and move one to other weights.")

Base = Annotated[str, typer.Argument(help="Its id, as `motet bases list` shows it.")]
Digest = Annotated[str, typer.Argument(help="Of the new weights: 64 hex digits.")]


@bases.command("list")
@says_why
def list_bases(context: typer.Context, as_json: AsJson = False) -> None:
    """Bases, the weights that may serve them, and how far upgrades are."""
    api = access_of(context).admin()
    show_list(api.pages(PATH), ["id", "name", "served", "digests", "upgrades"], as_json)


@bases.command("upgrade")
@says_why
def begin_upgrade(context: typer.Context, base: Base, digest: Digest, as_json: AsJson = False) -> None:
    """Let other weights in beside those that serve; adapters are proved on them in the background."""
    api = access_of(context).admin()
    show(api.post(f"{PATH}/{segment(base)}/upgrades", {"base_digest": digest}), as_json)


@bases.command("end-upgrade")
@says_why
def end_upgrade(
    context: typer.Context,
    base: Base,
    digest: Digest,
    keep: Annotated[str, typer.Option(help="new or old: which weights go on alone.")],
    leave_behind: Annotated[bool, typer.Option(help="Though not all versions are proved.")] = False,
    as_json: AsJson = False,
) -> None:
    """End an upgrade, either way."""
    api = access_of(context).admin()
    wanted = {"keep": keep, "leave_behind": leave_behind}
    show(api.post(f"{PATH}/{segment(base)}/upgrades/{segment(digest)}/end", wanted), as_json)


@bases.command("left-behind")
@says_why
def left_behind(
    context: typer.Context,
    base: Base,
    digest: Annotated[str | None, typer.Option(help="Those that failed on these weights.")] = None,
    as_json: AsJson = False,
) -> None:
    """Ready versions that can't follow: those of other bases, or those that failed on some weights."""
    api = access_of(context).admin()
    found = api.pages(f"{PATH}/{segment(base)}/left-behind", base_digest=digest)
    show_list(found, ["tenant", "id", "base_id", "reason"], as_json)
