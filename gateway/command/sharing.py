"""`motet adapters share`, and what goes with it: which tenants may use an adapter."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.command.access import tenant_id
from gateway.command.api import Api, CommandFailed, segment
from gateway.command.options import AsJson, MaybeTenant, TenantName, access_of
from gateway.command.output import says_why, show, show_list

sharing = typer.Typer()

EVERYONE = "all"

AdapterName = Annotated[str, typer.Argument(help="The adapter's bare name.")]
With = Annotated[str | None, typer.Option("--with", help="The other tenant's name.")]
WithAll = Annotated[bool, typer.Option("--all", help="Every other tenant.")]
Reach = Annotated[
    list[str] | None,
    typer.Option("--reach", help="An alias or version number that may follow the @; again for more."),
]
Whole = Annotated[bool, typer.Option("--every-version", help="Every alias and every ready version.")]


@sharing.command("share")
@says_why
def share(
    context: typer.Context,
    name: AdapterName,
    tenant: TenantName,
    to: With = None,
    to_all: WithAll = False,
    reach: Reach = None,
    every_version: Whole = False,
    as_json: AsJson = False,
) -> None:
    """Let another tenant, or all, use an adapter as owner/name; for operators. Default: what is live."""
    api, place = _place(context, name, tenant, to, to_all)
    if reach and every_version:
        raise CommandFailed("--reach and --every-version exclude each other.")
    body: dict[str, Any] = {"reachable": None} if every_version else {"reachable": reach} if reach else {}
    show(api.put(place, body), as_json)


@sharing.command("unshare")
@says_why
def unshare(
    context: typer.Context,
    name: AdapterName,
    tenant: TenantName,
    to: With = None,
    to_all: WithAll = False,
    as_json: AsJson = False,
) -> None:
    """End a share: nobody begins a request on it from 2 s on; for operators."""
    api, place = _place(context, name, tenant, to, to_all)
    show(api.delete(place), as_json)


@sharing.command("shares")
@says_why
def list_shares(
    context: typer.Context, name: AdapterName, tenant: MaybeTenant = None, as_json: AsJson = False
) -> None:
    """With whom an adapter is shared."""
    api, root = access_of(context).of_tenant(tenant)
    rows = api.pages(f"{root}/adapters/{segment(name)}/shares")
    show_list(rows, ["recipient_name", "reachable", "created_at", "updated_at"], as_json)


@sharing.command("shared")
@says_why
def list_received(context: typer.Context, tenant: MaybeTenant = None, as_json: AsJson = False) -> None:
    """Other tenants' adapters that a tenant may use."""
    api, root = access_of(context).of_tenant(tenant)
    show_list(api.pages(f"{root}/shared-adapters"), ["id", "reachable", "live", "shared_at"], as_json)


def _place(context: typer.Context, name: str, tenant: str, to: str | None, to_all: bool) -> tuple[Api, str]:
    if (to is None) != to_all:
        raise CommandFailed("Name the other tenant with --with, or say --all.")
    api = access_of(context).admin()
    recipient = EVERYONE if to is None else tenant_id(api, to)
    return api, f"/api/v1/tenants/{tenant_id(api, tenant)}/adapters/{segment(name)}/shares/{recipient}"
