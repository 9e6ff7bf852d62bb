"""`motet requests`: which requests there were, and why one was refused or slow."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.command.api import Api, segment
from gateway.command.options import AsJson, MaybeTenant, access_of, connect
from gateway.command.output import says_why, show, show_list

requests = typer.Typer(
    no_args_is_help=True, callback=connect, help="Requests of the last days: why one was refused or slow."
)

FIGURES = [
    "at",
    "requests",
    "served",
    "refused_by_limit",
    "refused_by_queue",
    "failed",
    "ttft_p50",
    "ttft_p95",
    "total_p95",
]
COLUMNS = ["id", "came_at", "outcome", "status", "error_code", "adapter", "total_ms", "queue_ms"]


@requests.command("list")
@says_why
def list_requests(  # noqa: PLR0913, PLR0917  its parameters are options
    context: typer.Context,
    tenant: MaybeTenant = None,
    outcome: Annotated[
        str | None, typer.Option(help="served, cached, replayed, refused, failed or client_left.")
    ] = None,
    status: Annotated[int | None, typer.Option(min=2, max=5, help="Class of status: 4 = 400 to 499.")] = None,
    code: Annotated[str | None, typer.Option(help="The error's code.")] = None,
    adapter: Annotated[str | None, typer.Option(help="The adapter's name.")] = None,
    key: Annotated[str | None, typer.Option(help="The API key's id.")] = None,
    slow_ms: Annotated[
        float | None, typer.Option(min=0, help="Milliseconds that they took at least.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="RFC 3339; 24 hours ago by default.")] = None,
    until: Annotated[str | None, typer.Option(help="RFC 3339; now by default.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="Newest so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """The newest requests, with what became of them."""
    api, root = access_of(context).of_tenant(tenant)
    found = api.get(
        f"{root}/requests",
        outcome=outcome,
        status=status,
        code=code,
        adapter=adapter,
        key=key,
        slow_ms=slow_ms,
        since=since,
        until=until,
        limit=limit,
    )
    show_list(found["data"], COLUMNS, as_json)


@requests.command("show")
@says_why
def show_request(
    context: typer.Context,
    request_id: Annotated[str, typer.Argument(help="As `x-request-id` of its answer.")],
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """One request: why it was refused or slow, step by step."""
    api, root = _of_request(context, tenant, request_id)
    story = api.get(f"{root}/requests/{segment(request_id)}")
    if as_json:
        show(story, as_json)
        return
    typer.echo(story["explanation"])
    show_list(story["timeline"], ["step", "begins_ms", "ms", "note"], as_json)
    about: dict[str, Any] = {**story["request"], "replica": story["replica"], "attempts": story["attempts"]}
    show(about, as_json)


def _of_request(context: typer.Context, tenant: str | None, request_id: str) -> tuple[Api, str]:
    """To an account its id alone says whose it is."""
    access = access_of(context)
    if tenant is not None or access.api_key is not None:
        return access.of_tenant(tenant)
    api = access.admin()
    found = api.get(f"/api/v1/requests/{segment(request_id)}")
    return api, f"/api/v1/tenants/{found['tenant']}"


@requests.command("metrics")
@says_why
def show_metrics(  # noqa: PLR0913, PLR0917  its parameters are options
    context: typer.Context,
    tenant: MaybeTenant = None,
    all_tenants: Annotated[bool, typer.Option("--all", help="Of all tenants; for operators.")] = False,
    window: Annotated[str, typer.Option(help="How far back: 30m, 12h, 7d.")] = "1h",
    since: Annotated[str | None, typer.Option(help="RFC 3339; instead of a window.")] = None,
    until: Annotated[str | None, typer.Option(help="RFC 3339; now by default.")] = None,
    step: Annotated[str | None, typer.Option(help="Whole minutes: 5m.")] = None,
    by: Annotated[str | None, typer.Option(help="A table for each adapter (or, with --all, tenant).")] = None,
    as_json: AsJson = False,
) -> None:
    """Counts and estimated percentiles (milliseconds) over time."""
    if all_tenants:
        api, root = access_of(context).admin(), "/api/v1"
    else:
        api, root = access_of(context).of_tenant(tenant)
    found = api.get(f"{root}/metrics/requests", window=window, since=since, until=until, step=step, by=by)
    if as_json:
        show(found, as_json)
        return
    for series in found["data"]:
        typer.echo(" · ".join(filter(None, (series["tenant_name"], series["key"]))))
        rows = [_line(point["at"], point["figures"]) for point in series["points"]]
        show_list([*rows, _line("total", series["total"])], FIGURES, as_json)


def _line(at: str, figures: dict[str, Any]) -> dict[str, Any]:
    times = {
        f"{name}_{part}": figures[f"{name}_ms"][part] for name in ("ttft", "total") for part in ("p50", "p95")
    }
    return {"at": at, **figures, **times}
