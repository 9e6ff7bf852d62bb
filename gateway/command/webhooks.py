"""`motet webhooks`: where a tenant is told of events."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.command.api import segment
from gateway.command.options import AsJson, MaybeTenant, access_of, connect
from gateway.command.output import says_why, show, show_list

webhooks = typer.Typer(no_args_is_help=True, callback=connect, help="Where a tenant is told of events.")

COLUMNS = ["id", "url", "kinds", "status", "failing_since", "disabled_reason"]
DELIVERIES = ["id", "kind", "state", "attempts", "last_status", "last_error", "next_at", "created_at"]
Id = Annotated[str, typer.Argument(help="The webhook's id.")]


@webhooks.command("list")
@says_why
def list_webhooks(context: typer.Context, tenant: MaybeTenant = None, as_json: AsJson = False) -> None:
    """A tenant's webhooks."""
    api, root = access_of(context).of_tenant(tenant)
    show_list(api.get(f"{root}/webhooks")["data"], COLUMNS, as_json)


@webhooks.command("show")
@says_why
def show_webhook(
    context: typer.Context, webhook_id: Id, tenant: MaybeTenant = None, as_json: AsJson = False
) -> None:
    """One webhook."""
    api, root = access_of(context).of_tenant(tenant)
    show(api.get(f"{root}/webhooks/{segment(webhook_id)}"), as_json)


@webhooks.command("create")
@says_why
def create_webhook(
    context: typer.Context,
    url: Annotated[str, typer.Argument(help="https://…")],
    kind: Annotated[list[str] | None, typer.Option(help="Only these events; repeat. Default: all.")] = None,
    description: str = "",
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """Make a webhook. Its secret is shown now and never again."""
    api, root = access_of(context).of_tenant(tenant)
    wanted: dict[str, Any] = {"url": url, "kinds": kind or None, "description": description}
    _show_with_secret(api.post(f"{root}/webhooks", wanted), as_json)


@webhooks.command("set")
@says_why
def set_webhook(
    context: typer.Context,
    webhook_id: Id,
    url: Annotated[str | None, typer.Option(help="https://…")] = None,
    status: Annotated[str | None, typer.Option(help="active or disabled.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only these events; repeat.")] = None,
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """Change a webhook, disable it, or make it active again."""
    api, root = access_of(context).of_tenant(tenant)
    named = {"url": url, "status": status, "kinds": kind or None}
    changes = {name: value for name, value in named.items() if value is not None}
    show(api.patch(f"{root}/webhooks/{segment(webhook_id)}", changes), as_json)


@webhooks.command("delete")
@says_why
def delete_webhook(
    context: typer.Context, webhook_id: Id, tenant: MaybeTenant = None, as_json: AsJson = False
) -> None:
    """Delete a webhook with its deliveries."""
    api, root = access_of(context).of_tenant(tenant)
    show(api.delete(f"{root}/webhooks/{segment(webhook_id)}"), as_json)


@webhooks.command("rotate")
@says_why
def rotate_webhook(
    context: typer.Context,
    webhook_id: Id,
    overlap_h: Annotated[int, typer.Option(min=0, max=168, help="Hours in which both secrets sign.")] = 24,
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """Replace a webhook's secret. The new one is shown now and never again."""
    api, root = access_of(context).of_tenant(tenant)
    place = f"{root}/webhooks/{segment(webhook_id)}/rotate"
    _show_with_secret(api.post(place, {"overlap_h": overlap_h}), as_json)


@webhooks.command("ping")
@says_why
def ping_webhook(
    context: typer.Context, webhook_id: Id, tenant: MaybeTenant = None, as_json: AsJson = False
) -> None:
    """Send a webhook a ping; `deliveries` says what became of it."""
    api, root = access_of(context).of_tenant(tenant)
    show(api.post(f"{root}/webhooks/{segment(webhook_id)}/ping", {}), as_json)


@webhooks.command("deliveries")
@says_why
def list_deliveries(
    context: typer.Context, webhook_id: Id, tenant: MaybeTenant = None, as_json: AsJson = False
) -> None:
    """The last 200 events that were sent to a webhook, newest first."""
    api, root = access_of(context).of_tenant(tenant)
    found = api.get(f"{root}/webhooks/{segment(webhook_id)}/deliveries", limit=200)["data"]
    show_list(found, DELIVERIES, as_json)


@webhooks.command("redeliver")
@says_why
def redeliver(
    context: typer.Context,
    webhook_id: Id,
    delivery_id: Annotated[str, typer.Argument(help="As `deliveries` shows it.")],
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """Send an event to a webhook once more, under the same id."""
    api, root = access_of(context).of_tenant(tenant)
    place = f"{root}/webhooks/{segment(webhook_id)}/deliveries/{segment(delivery_id)}/redeliver"
    show(api.post(place, {}), as_json)


def _show_with_secret(made: Any, as_json: bool) -> None:
    show(made if as_json else {"secret": made["secret"], **made["endpoint"]}, as_json)
