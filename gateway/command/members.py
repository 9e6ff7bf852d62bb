"""`motet members`: who, besides operators, may act for a tenant."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.command.access import tenant_id
from gateway.command.api import Api, CommandFailed, segment
from gateway.command.options import AsJson, TenantName, access_of, connect
from gateway.command.output import says_why, show, show_list

members = typer.Typer(no_args_is_help=True, callback=connect, help="Members of tenants, and their tokens.")

Email = Annotated[str, typer.Argument(help="The member's email.")]
Role = Annotated[str, typer.Option(help="tenant_admin, developer, billing or viewer.")]


@members.command("add")
@says_why
def add_member(
    context: typer.Context, email: Email, tenant: TenantName, role: Role, as_json: AsJson = False
) -> None:
    """Make an account a member; an email without an account gets one."""
    api, root = _members_of(context, tenant)
    show(api.post(root, {"email": email, "role": role}), as_json)


@members.command("list")
@says_why
def list_members(context: typer.Context, tenant: TenantName, as_json: AsJson = False) -> None:
    """A tenant's members."""
    api, root = _members_of(context, tenant)
    show_list(api.pages(root), ["email", "role", "id", "created_at"], as_json)


@members.command("set-role")
@says_why
def set_role(
    context: typer.Context, email: Email, tenant: TenantName, role: Role, as_json: AsJson = False
) -> None:
    """Give a member another role."""
    api, member = _member(context, tenant, email)
    show(api.patch(member, {"role": role}), as_json)


@members.command("remove")
@says_why
def remove_member(context: typer.Context, email: Email, tenant: TenantName, as_json: AsJson = False) -> None:
    """Remove a member, with the tokens."""
    api, member = _member(context, tenant, email)
    show(api.delete(member), as_json)


@members.command("set-password")
@says_why
def set_password(
    context: typer.Context,
    email: Email,
    tenant: TenantName,
    password: Annotated[
        str,
        typer.Option(envvar="MOTET_MEMBER_PASSWORD", prompt=True, hide_input=True, confirmation_prompt=True),
    ],
) -> None:
    """Set the password of a member's account, for all its tenants. Operators only."""
    api, member = _member(context, tenant, email)
    api.put(f"{member}/password", {"password": password})
    typer.echo("set")


@members.command("create-token")
@says_why
def create_token(
    context: typer.Context,
    email: Email,
    tenant: TenantName,
    name: Annotated[str, typer.Option(help="What it is for.")],
    expires_at: Annotated[str | None, typer.Option(help="RFC 3339. Default: never.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a bearer token that is good for this membership. It is shown now and never again."""
    api, member = _member(context, tenant, email)
    wanted = {"name": name} | ({} if expires_at is None else {"expires_at": expires_at})
    made = api.post(f"{member}/tokens", wanted)
    show(made if as_json else {"secret": made["secret"], **made["token"]}, as_json)


@members.command("tokens")
@says_why
def list_tokens(context: typer.Context, email: Email, tenant: TenantName, as_json: AsJson = False) -> None:
    """A member's tokens."""
    api, member = _member(context, tenant, email)
    columns = ["id", "name", "created_at", "expires_at", "revoked_at"]
    show_list(api.pages(f"{member}/tokens"), columns, as_json)


@members.command("revoke-token")
@says_why
def revoke_token(
    context: typer.Context, email: Email, token_id: str, tenant: TenantName, as_json: AsJson = False
) -> None:
    """Revoke a member's token for good."""
    api, member = _member(context, tenant, email)
    show(api.delete(f"{member}/tokens/{segment(token_id)}"), as_json)


def _members_of(context: typer.Context, tenant: str) -> tuple[Api, str]:
    api = access_of(context).admin()
    return api, f"/api/v1/tenants/{tenant_id(api, tenant)}/members"


def _member(context: typer.Context, tenant: str, email: str) -> tuple[Api, str]:
    api, root = _members_of(context, tenant)
    found: list[dict[str, Any]] = [
        one for one in api.pages(root) if email.lower() in (one["email"], one["id"])
    ]
    if not found:
        raise CommandFailed(f"'{email}' is no member of {tenant}.")
    return api, f"{root}/{found[0]['id']}"
