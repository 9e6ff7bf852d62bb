"""`motet keys`: API keys of a tenant, as an account with `--tenant`, or as the tenant with its own key."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.command.api import Api, CommandFailed, segment
from gateway.command.options import AsJson, MaybeTenant, access_of, connect
from gateway.command.output import says_why, show, show_list

keys = typer.Typer(no_args_is_help=True, callback=connect, help="Make, change, rotate and revoke API keys.")

NONE = "none"
"""What lifts a bound on the command line."""

Scopes = Annotated[list[str] | None, typer.Option("--scope", help="Repeat for several.")]
Models = Annotated[list[str] | None, typer.Option("--model", help="Only these models; repeat; or none.")]
Networks = Annotated[
    list[str] | None,
    typer.Option("--network", help="Only from these addresses or networks; repeat; or none."),
]
ServiceClass = Annotated[str | None, typer.Option(help="interactive, standard or batch.")]
Expiry = Annotated[str | None, typer.Option(help="RFC 3339, as 2026-12-31T00:00:00Z; or none.")]
Limit = Annotated[str | None, typer.Option(help="A number, or none.")]

COLUMNS = [
    "id",
    "name",
    "scopes",
    "service_class",
    "expires_at",
    "revoked_at",
    "last_used_at",
    "previous_until",
]


@keys.command("create")
@says_why
def create_key(  # noqa: PLR0913, PLR0917  its parameters are options
    context: typer.Context,
    name: Annotated[str, typer.Option(help="What it is for.")],
    tenant: MaybeTenant = None,
    scope: Scopes = None,
    model: Models = None,
    network: Networks = None,
    service_class: ServiceClass = None,
    expires_at: Expiry = None,
    requests_per_minute: Limit = None,
    tokens_per_minute: Limit = None,
    max_parallel: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Make an API key, for inference unless told otherwise. Its secret is shown now and never again."""
    api, root = _keys_of(context, tenant)
    limits = _limits(requests_per_minute, tokens_per_minute, max_parallel)
    wanted = {"name": name, **_policy(scope, model, network, service_class, expires_at), **limits}
    _show_made(api.post(root, wanted), as_json)


@keys.command("update")
@says_why
def update_key(  # noqa: PLR0913, PLR0917  its parameters are options
    context: typer.Context,
    key_id: str,
    tenant: MaybeTenant = None,
    name: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    scope: Scopes = None,
    model: Models = None,
    network: Networks = None,
    service_class: ServiceClass = None,
    expires_at: Expiry = None,
    requests_per_minute: Limit = None,
    tokens_per_minute: Limit = None,
    max_parallel: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Change what a key may do, from its next request on. What isn't named stays; `none` lifts a bound."""
    api, root = _keys_of(context, tenant)
    limits = _limits(requests_per_minute, tokens_per_minute, max_parallel)
    changes = {**_policy(scope, model, network, service_class, expires_at), **limits}
    changes |= {} if name is None else {"name": name}
    show(api.patch(f"{root}/{segment(key_id)}", changes), as_json)


@keys.command("list")
@says_why
def list_keys(context: typer.Context, tenant: MaybeTenant = None, as_json: AsJson = False) -> None:
    """A tenant's keys."""
    api, root = _keys_of(context, tenant)
    show_list(api.pages(root), COLUMNS, as_json)


@keys.command("show")
@says_why
def show_key(
    context: typer.Context, key_id: str, tenant: MaybeTenant = None, as_json: AsJson = False
) -> None:
    """One key."""
    api, root = _keys_of(context, tenant)
    show(api.get(f"{root}/{segment(key_id)}"), as_json)


@keys.command("rotate")
@says_why
def rotate_key(
    context: typer.Context,
    key_id: str,
    tenant: MaybeTenant = None,
    overlap_s: Annotated[
        int, typer.Option(min=0, help="Seconds that the old secret goes on; 0 ends it now.")
    ] = 86_400,
    as_json: AsJson = False,
) -> None:
    """Give a key a new secret, which is shown now and never again."""
    api, root = _keys_of(context, tenant)
    _show_made(api.post(f"{root}/{segment(key_id)}/rotate", {"overlap_s": overlap_s}), as_json)


@keys.command("end-previous")
@says_why
def end_previous(
    context: typer.Context, key_id: str, tenant: MaybeTenant = None, as_json: AsJson = False
) -> None:
    """End the secret of before the last rotation now."""
    api, root = _keys_of(context, tenant)
    show(api.delete(f"{root}/{segment(key_id)}/previous-secret"), as_json)


@keys.command("revoke")
@says_why
def revoke_key(
    context: typer.Context, key_id: str, tenant: MaybeTenant = None, as_json: AsJson = False
) -> None:
    """Revoke a key for good."""
    api, root = _keys_of(context, tenant)
    show(api.delete(f"{root}/{segment(key_id)}"), as_json)


def _keys_of(context: typer.Context, tenant: str | None) -> tuple[Api, str]:
    api, root = access_of(context).of_tenant(tenant)
    return api, f"{root}/keys"


def _policy(
    scopes: list[str] | None,
    models: list[str] | None,
    networks: list[str] | None,
    service_class: str | None,
    expires_at: str | None,
) -> dict[str, Any]:
    named: dict[str, Any] = {
        "scopes": scopes or None,
        "allowed_models": models or None,
        "allowed_networks": networks or None,
        "service_class": service_class,
        "expires_at": expires_at,
    }
    return {
        field: None if value in (NONE, [NONE]) else value
        for field, value in named.items()
        if value is not None
    }


def _limits(requests: str | None, tokens: str | None, parallel: str | None) -> dict[str, int | None]:
    named = {"requests_per_minute": requests, "tokens_per_minute": tokens, "max_parallel": parallel}
    return {field: _number(field, value) for field, value in named.items() if value is not None}


def _number(field: str, value: str) -> int | None:
    if value == NONE:
        return None
    if not value.isascii() or not value.isdigit():
        raise CommandFailed(f"--{field.replace('_', '-')} takes a number, or {NONE}.")
    return int(value)


def _show_made(made: dict[str, Any], as_json: bool) -> None:
    show(made if as_json else {"secret": made["secret"], **made["key"]}, as_json)
