"""`motet billing`: price book, statements, re-rating."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.command.access import tenant_id
from gateway.command.api import CommandFailed, segment
from gateway.command.options import AsJson, MaybeTenant, Month, access_of, connect
from gateway.command.output import says_why, show, show_list

billing = typer.Typer(no_args_is_help=True, callback=connect, help="Price book, statements, re-rating.")

PRICES = ["model", "owner", "adapter", "base_id", "service_class", "input", "cached_input", "output"]
LINES = ["used_month", "adapter", "service_class", "meter", "tokens", "unit_price", "amount"]
Version = Annotated[int, typer.Argument(min=1, help="Price book version.")]


@billing.command("prices")
@says_why
def list_versions(context: typer.Context, as_json: AsJson = False) -> None:
    """Price book versions, newest first."""
    found = access_of(context).admin().pages("/api/v1/price-books")
    show_list(found, ["version", "effective_from", "currency", "note", "created_by"], as_json)


@billing.command("show-prices")
@says_why
def show_version(context: typer.Context, version: Version, as_json: AsJson = False) -> None:
    """The prices of a version, per million tokens."""
    found = access_of(context).admin().get(f"/api/v1/price-books/{version}")
    if as_json:
        show(found, as_json)
    else:
        show_list(found["prices"], [*PRICES, "answer_input", "answer_output"], as_json)


@billing.command("set-prices")
@says_why
def create_version(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="JSON: effective_from and prices, as in docs/API.md.")],
    as_json: AsJson = False,
) -> None:
    """Make the next version of the price book. Nothing that is rated changes by it."""
    made = access_of(context).admin().post("/api/v1/price-books", _read(file))
    show(made if as_json else made["book"], as_json)


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{file} can't be read as JSON: {error}.") from error


@billing.command("price")
@says_why
def choose_price(
    context: typer.Context,
    tenant: MaybeTenant = None,
    adapter: Annotated[str | None, typer.Option(help="Of --tenant. Without: the base.")] = None,
    service_class: Annotated[str, typer.Option(help="interactive, standard or batch.")] = "standard",
    version: Annotated[int | None, typer.Option(min=1, help="Default: the one in force.")] = None,
    as_json: AsJson = False,
) -> None:
    """Which price holds for what a tenant uses, and why."""
    api = access_of(context).admin()
    found = api.get(
        "/api/v1/price-choice",
        base_id=api.get("/api/v1/base-weights")["base_id"],
        owner=None if tenant is None else tenant_id(api, tenant),
        adapter=adapter,
        service_class=service_class,
        version=version,
    )
    if as_json:
        show(found, as_json)
        return
    facts = {"version": found["version"], "currency": found["currency"], "reason": found["reason"]}
    show({**facts, **found["winner"]}, as_json)


@billing.command("re-rate")
@says_why
def rerate(
    context: typer.Context,
    version: Version,
    start: Annotated[str, typer.Option(help="RFC 3339, a quarter of an hour.")],
    end: Annotated[str, typer.Option(help="Exclusive.")],
    tenant: MaybeTenant = None,
    apply: Annotated[bool, typer.Option(help="Do it; without this it is a dry run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Rate usage anew under a version: reversals and new charges are appended, nothing is changed."""
    api = access_of(context).admin()
    wanted: dict[str, Any] = {"start": start, "end": end, "dry_run": not apply}
    if tenant is not None:
        wanted["tenant"] = tenant_id(api, tenant)
    told = api.post(f"/api/v1/price-books/{version}/re-ratings", wanted)
    if as_json:
        show(told, as_json)
    else:
        show_list(told["data"], ["name", "before", "after", "difference", "charges"], as_json)


@billing.command("preview-prices")
@says_why
def preview_version(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="As for `set-prices`.")],
    start: Annotated[str, typer.Option(help="RFC 3339, a quarter of an hour.")],
    end: Annotated[str, typer.Option(help="Exclusive.")],
    as_json: AsJson = False,
) -> None:
    """What usage would have cost under a version that is not made yet, by tenant."""
    wanted = {"book": _read(file), "start": start, "end": end}
    told = access_of(context).admin().post("/api/v1/price-books/preview", wanted)
    if as_json:
        show(told, as_json)
    else:
        show_list(told["data"], ["name", "before", "after", "difference", "charges"], as_json)


@billing.command("reconcile")
@says_why
def reconcile(context: typer.Context, month: Month = None, as_json: AsJson = False) -> None:
    """Each tenant's month: what it is billed, and whether used, charged and ledger are the same tokens."""
    api = access_of(context).admin()
    month = month or f"{datetime.now(UTC):%Y-%m}"
    found = api.pages(f"/api/v1/billing/periods/{segment(month)}/tenants", ledger="true")
    columns = ["name", "statement", "currency", "exact", "total", "used", "charged", "ledger", "agrees"]
    show_list(found, columns, as_json)


@billing.command("periods")
@says_why
def list_periods(
    context: typer.Context,
    tenant: MaybeTenant = None,
    all_tenants: Annotated[bool, typer.Option("--all", help="Of all tenants; for operators.")] = False,
    as_json: AsJson = False,
) -> None:
    """Months in which a tenant is billed something; with --all which are closed, and why one is not."""
    if all_tenants:
        months = access_of(context).admin().pages("/api/v1/billing/periods")
        columns = ["month", "status", "blocked", "complete_until", "tenants", "currency", "exact", "total"]
        show_list(months, columns, as_json)
        return
    api, root = access_of(context).of_tenant(tenant)
    found = api.pages(f"{root}/billing/periods")
    show_list(found, ["month", "status", "statement", "currency", "exact", "total"], as_json)


@billing.command("exports")
@says_why
def list_exports(
    context: typer.Context,
    tenant: MaybeTenant = None,
    all_tenants: Annotated[bool, typer.Option("--all", help="Of all tenants; for operators.")] = False,
    month: Annotated[str | None, typer.Option(help="UTC month: YYYY-MM. Default: all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Exports that were asked for, newest first; `motet usage export` makes one and fetches its files."""
    if all_tenants:
        api, root = access_of(context).admin(), "/api/v1"
    else:
        api, root = access_of(context).of_tenant(tenant)
    found = api.pages(f"{root}/billing/exports", month=month)
    show_list(found, ["id", "month", "period", "state", "reason", "created_at", "finished_at"], as_json)


@billing.command("statement")
@says_why
def show_statement(
    context: typer.Context, tenant: MaybeTenant = None, month: Month = None, as_json: AsJson = False
) -> None:
    """A month's statement; a preview while the month is open."""
    api, root = access_of(context).of_tenant(tenant)
    found = api.get(f"{root}/billing/statement", month=month)
    if as_json:
        show(found, as_json)
        return
    rounding = {"meter": "Rounding", "amount": found["rounding"]}
    total = {"meter": "Total", "amount": f"{found['total']} {found['currency'] or ''}".strip()}
    show_list([*found["lines"], rounding, total], LINES, as_json)
    typer.echo(
        f"{found['month']} {found['status']}, complete until {found['complete_until'] or 'nobody knows'}"
    )
