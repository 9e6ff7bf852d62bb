"""`motet usage`: what a tenant used, and the same as files for billing."""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.command.access import Access
from gateway.command.api import Api, CommandFailed, segment
from gateway.command.options import AsJson, Key, MaybeTenant, Month, Token, Url, access_of
from gateway.command.output import says_why, show, show_list
from gateway.command.receipts import add_to

usage = typer.Typer(help="What a tenant used, by day and adapter.")
add_to(usage)

PAUSE_S = 0.5
COLUMNS = ["day", "adapter", "requests", "prompt_tokens", "completion_tokens", "cached_tokens", "amount"]
SUMS = ["requests", "prompt_tokens", "completion_tokens", "cached_tokens", "amount", "unpriced_tokens"]
SHARED_COLUMNS = [
    "day",
    "tenant",
    "adapter",
    "requests",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
]
Zone = Annotated[str | None, typer.Option(help="IANA time zone of the days. Default: the tenant's.")]
FILES = {"csv": "charges.csv", "parquet": "charges.parquet", "manifest": "manifest.json"}


@usage.callback(invoke_without_command=True)
@says_why
def show_usage(  # noqa: PLR0913, PLR0917  its parameters are options
    context: typer.Context,
    tenant: MaybeTenant = None,
    first: Annotated[str | None, typer.Option(help="First day: YYYY-MM-DD.")] = None,
    last: Annotated[str | None, typer.Option(help="Last day.")] = None,
    zone: Zone = None,
    url: Url = None,
    admin_token: Token = None,
    api_key: Key = None,
    as_json: AsJson = False,
) -> None:
    """What a tenant used, by day and adapter: billed requests and tokens, and what they cost."""
    context.obj = Access.gather(url, admin_token, api_key)
    if context.invoked_subcommand is not None:
        return
    api, root = access_of(context).of_tenant(tenant)
    report = api.get(f"{root}/usage", first=first, last=last, zone=zone)
    if as_json:
        show(report, as_json)
        return
    show_list([*report["data"], {**report, "day": "total"}], COLUMNS, as_json)
    typer.echo(f"{report['start']} to {report['end']} ({report['zone']})", nl=False)
    typer.echo(f", complete until {report['complete_until'] or 'nobody knows'}")
    if report["has_unpriced"]:
        typer.echo("Some of these tokens have no price; the amounts are without them.")
    if report["unknown_requests"]:
        typer.echo(f"Not counted yet: {report['unknown_requests']} requests.")


@usage.command("by")
@says_why
def show_summary(
    context: typer.Context,
    by: Annotated[str, typer.Argument(help="adapter, key or service_class.")],
    tenant: MaybeTenant = None,
    first: Annotated[str | None, typer.Option(help="First day: YYYY-MM-DD.")] = None,
    last: Annotated[str | None, typer.Option(help="Last day.")] = None,
    period: Annotated[
        str | None, typer.Option(help="last_7_days, last_31_days, this_month or last_month.")
    ] = None,
    zone: Zone = None,
    as_json: AsJson = False,
) -> None:
    """What a tenant used, summed by adapter, key or service class."""
    api, root = access_of(context).of_tenant(tenant)
    wanted = {"by": by, "first": first, "last": last, "period": period, "zone": zone}
    found = api.get(f"{root}/usage/summary", **wanted)
    if as_json:
        show(found, as_json)
        return
    others = [] if found["others"] is None else [{**found["others"], "id": "others"}]
    show_list([*found["groups"], *others, {**found["total"], "id": "total"}], ["id", "name", *SUMS], as_json)
    typer.echo(f"{found['start']} to {found['end']} ({found['zone']})", nl=False)
    typer.echo(f", complete until {found['complete_until'] or 'nobody knows'}")
    if found["unknown_requests"]:
        typer.echo(f"Not counted yet: {found['unknown_requests']} requests.")


@usage.command("shared")
@says_why
def show_shared_use(
    context: typer.Context,
    tenant: MaybeTenant = None,
    first: Annotated[str | None, typer.Option(help="First day: YYYY-MM-DD.")] = None,
    last: Annotated[str | None, typer.Option(help="Last day.")] = None,
    adapter: Annotated[str | None, typer.Option(help="Of this adapter only.")] = None,
    zone: Zone = None,
    as_json: AsJson = False,
) -> None:
    """What other tenants used of a tenant's adapters, by day: who, and how much."""
    api, root = access_of(context).of_tenant(tenant)
    report = api.get(f"{root}/usage/shared-adapters", first=first, last=last, adapter=adapter, zone=zone)
    if as_json:
        show(report, as_json)
        return
    show_list([*report["data"], {**report, "day": "total"}], SHARED_COLUMNS, as_json)
    typer.echo(f"{report['zone']}, complete until {report['complete_until'] or 'nobody knows'}")


@usage.command("export")
@says_why
def export_usage(
    context: typer.Context,
    tenant: MaybeTenant = None,
    all_tenants: Annotated[bool, typer.Option("--all", help="Of all tenants; for operators.")] = False,
    month: Month = None,
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path(),
    wait_s: Annotated[float, typer.Option(min=1, help="Longest wait until it is made.")] = 120.0,
    as_json: AsJson = False,
) -> None:
    """A month's charges as CSV and Parquet with FOCUS columns, and the manifest with their checksums."""
    if all_tenants:
        api, root = access_of(context).admin(), "/api/v1"
    else:
        api, root = access_of(context).of_tenant(tenant)
    place = f"{root}/billing/exports"
    made = _made(api, place, month or f"{datetime.now(UTC):%Y-%m}", time.monotonic() + wait_s)
    out.mkdir(parents=True, exist_ok=True)
    source = f"{place}/{segment(made['id'])}/file"
    manifest = api.get(source, kind="manifest")
    for kind, name in FILES.items():
        api.download(source, out / name, kind=kind)
    for each in manifest["files"]:
        if hashlib.sha256((out / each["name"]).read_bytes()).hexdigest() != each["sha256"]:
            raise CommandFailed(f"{out / each['name']} is not what the manifest says.")
    if as_json:
        show(manifest, as_json)
    else:
        show({"export": made["id"], "rows": manifest["rows"], "folder": str(out)}, as_json)


def _made(api: Api, place: str, month: str, until: float) -> Any:
    """Asks, and waits until it is done."""
    export = api.post(place, {"month": month})
    while export["state"] == "waiting":
        if time.monotonic() > until:
            raise CommandFailed(f"Export {export['id']} is not made yet. Is `motet control` running?")
        time.sleep(PAUSE_S)
        export = api.get(f"{place}/{segment(export['id'])}")
    if export["state"] != "done":
        raise CommandFailed(f"Export {export['id']}: {export['state']}. {export['reason'] or ''}".strip())
    return export
