"""The gateway's sub-commands of `motet`: run its processes, and talk to its API.

All but `gateway` and `control` have no rights of their own: they are clients of the API.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from gateway.command.access import tenant_id
from gateway.command.aliases import aliases
from gateway.command.api import CommandFailed, segment
from gateway.command.attention import attention
from gateway.command.audit import audit
from gateway.command.bases import bases
from gateway.command.billing import billing
from gateway.command.differences import differences
from gateway.command.doctor import doctor
from gateway.command.following import follow_changes
from gateway.command.keys import keys
from gateway.command.leaving import leaving
from gateway.command.limits import limits
from gateway.command.members import members
from gateway.command.options import AsJson, MaybeTenant, access_of, connect
from gateway.command.output import says_why, show, show_list
from gateway.command.placement import placement
from gateway.command.replicas import replicas
from gateway.command.requests import requests
from gateway.command.retirement import retirement
from gateway.command.rollouts import rollout
from gateway.command.sharing import sharing
from gateway.command.uploading import upload_adapter
from gateway.command.usage import usage
from gateway.command.webhooks import webhooks
from gateway.config import Settings

app = typer.Typer()

Limit = Annotated[int | None, typer.Option(min=1, help="Default: no limit.")]
Zone = Annotated[str | None, typer.Option(help="IANA time zone of its usage's days, such as Europe/Vienna.")]


tenants = typer.Typer(no_args_is_help=True, callback=connect, help="Make and change tenants.")
adapters = typer.Typer(
    no_args_is_help=True, callback=connect, help="Upload, list, share and delete adapters."
)
tenants.add_typer(leaving)
adapters.command("upload")(upload_adapter)
adapters.add_typer(retirement)
adapters.add_typer(differences)
adapters.add_typer(sharing)
app.add_typer(tenants, name="tenants")
app.add_typer(keys, name="keys")
app.add_typer(members, name="members")
adapters.add_typer(aliases, name="aliases")
adapters.add_typer(rollout, name="rollout")
app.add_typer(adapters, name="adapters")
app.add_typer(limits, name="limits")
app.add_typer(usage, name="usage")
app.add_typer(billing, name="billing")
app.add_typer(requests, name="requests")
app.add_typer(webhooks, name="webhooks")
app.add_typer(replicas, name="replicas")
app.add_typer(bases, name="bases")
app.add_typer(placement, name="placement")
app.command("changes")(follow_changes)
app.add_typer(audit, name="audit")
app.add_typer(attention, name="attention")
app.command("doctor")(doctor)


@app.command()
@says_why
def gateway(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535)] = 8080,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes.")] = 1,
) -> None:
    """Run the gateway: the public API. Settings come from MOTET_* variables."""
    from gateway.serve import ServeError, serve  # noqa: PLC0415  the API's clients need none of it
    from gateway.telemetry import configure_logging  # noqa: PLC0415

    settings = _settings()
    configure_logging()
    try:
        serve(settings, host, port, workers)
    except ServeError as error:
        raise CommandFailed(str(error)) from error


@app.command()
@says_why
def control() -> None:
    """Run the control process: ledger drain, reconciliation, billing, webhooks, upkeep."""
    from gateway.control import CanNotListen, run_control  # noqa: PLC0415  the API's clients need none of it
    from gateway.telemetry import configure_logging  # noqa: PLC0415

    settings = _settings()
    configure_logging()
    try:
        asyncio.run(_until_told(run_control(settings)))
    except CanNotListen as error:
        raise CommandFailed(str(error)) from error


@tenants.command("create")
@says_why
def create_tenant(
    context: typer.Context,
    name: str,
    requests_per_minute: Limit = None,
    tokens_per_minute: Limit = None,
    max_parallel: Limit = None,
    reporting_zone: Zone = None,
    as_json: AsJson = False,
) -> None:
    """Make a tenant."""
    wanted = {"name": name, **_limits(requests_per_minute, tokens_per_minute, max_parallel)}
    wanted |= {} if reporting_zone is None else {"reporting_zone": reporting_zone}
    show(access_of(context).admin().post("/api/v1/tenants", wanted), as_json)


@tenants.command("list")
@says_why
def list_tenants(context: typer.Context, as_json: AsJson = False) -> None:
    """All tenants."""
    columns = ["name", "id", "status", "requests_per_minute", "tokens_per_minute", "max_parallel"]
    show_list(access_of(context).admin().pages("/api/v1/tenants"), columns, as_json)


@tenants.command("show")
@says_why
def show_tenant(context: typer.Context, name: str, as_json: AsJson = False) -> None:
    """One tenant."""
    api = access_of(context).admin()
    show(api.get(f"/api/v1/tenants/{tenant_id(api, name)}"), as_json)


@tenants.command("set")
@says_why
def set_tenant(  # noqa: PLR0913, PLR0917  its parameters are options
    context: typer.Context,
    name: str,
    requests_per_minute: Limit = None,
    tokens_per_minute: Limit = None,
    max_parallel: Limit = None,
    status: Annotated[str | None, typer.Option(help="active or suspended.")] = None,
    share_weight: Annotated[int | None, typer.Option(min=1, max=100, help="In the queue.")] = None,
    reporting_zone: Zone = None,
    as_json: AsJson = False,
) -> None:
    """Change a tenant's limits or weight, or suspend it."""
    api = access_of(context).admin()
    changes = _limits(requests_per_minute, tokens_per_minute, max_parallel)
    changes |= {} if status is None else {"status": status}
    changes |= {} if share_weight is None else {"share_weight": share_weight}
    changes |= {} if reporting_zone is None else {"reporting_zone": reporting_zone}
    show(api.patch(f"/api/v1/tenants/{tenant_id(api, name)}", changes), as_json)


@tenants.command("caches")
@says_why
def tenant_caches(
    context: typer.Context,
    name: str,
    response_cache: Annotated[str | None, typer.Option(help="off, greedy or seeded.")] = None,
    age_s: Annotated[int | None, typer.Option(min=1, help="Seconds that an answer is kept at most.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a tenant's caches, or turn its response cache on or off."""
    api = access_of(context).admin()
    path = f"/api/v1/tenants/{tenant_id(api, name)}/caches"
    named = {"response_cache": response_cache, "response_cache_age_s": age_s}
    changes = {field: value for field, value in named.items() if value is not None}
    show(api.patch(path, changes) if changes else api.get(path), as_json)


@tenants.command("drop-caches")
@says_why
def drop_caches(context: typer.Context, name: str, as_json: AsJson = False) -> None:
    """Drop a tenant's response cache and prefix cache at once."""
    api = access_of(context).admin()
    show(api.delete(f"/api/v1/tenants/{tenant_id(api, name)}/caches"), as_json)


@adapters.command("list")
@says_why
def list_adapters(context: typer.Context, tenant: MaybeTenant = None, as_json: AsJson = False) -> None:
    """A tenant's adapters."""
    api, root = access_of(context).of_tenant(tenant)
    show_list(api.pages(f"{root}/adapters"), ["name", "aliases", "latest", "base", "created_at"], as_json)


@adapters.command("models")
@says_why
def list_models(context: typer.Context, tenant: MaybeTenant = None, as_json: AsJson = False) -> None:
    """All that a tenant may name as a request's `model`: the base, its adapters, those shared with it."""
    api, root = access_of(context).of_tenant(tenant)
    show_list(api.get(f"{root}/models")["data"], ["id", "owned_by", "parent"], as_json)


@adapters.command("show")
@says_why
def show_adapter(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="name, or name@version")],
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """An adapter's versions, or one of them."""
    api, root = access_of(context).of_tenant(tenant)
    bare, _, version = name.partition("@")
    place = f"{root}/adapters/{segment(bare)}/versions"
    if version:
        show(api.get(f"{place}/{segment(version)}"), as_json)
    else:
        show_list(api.pages(place), ["id", "state", "aliases", "ranks", "bytes", "created_at"], as_json)


@adapters.command("proof")
@says_why
def show_proof(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="name@version")],
    again: Annotated[bool, typer.Option(help="Have it proved once more first.")] = False,
    longest: Annotated[bool, typer.Option(help="With --again: at the longest context, too.")] = False,
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """What the files of a version say, and what replicas found of it."""
    api, root = access_of(context).of_tenant(tenant)
    bare, _, version = name.partition("@")
    place = f"{root}/adapters/{segment(bare)}/versions/{segment(version)}/proof"
    show(api.post(place, {"longest": longest}) if again else api.get(place), as_json)


@adapters.command("delete")
@says_why
def delete_adapter(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="name for all versions, or name@version")],
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """Retire an adapter, or one version of it. It can be restored until it is purged."""
    api, root = access_of(context).of_tenant(tenant)
    bare, _, version = name.partition("@")
    place = f"{root}/adapters/{segment(bare)}"
    show(api.delete(f"{place}/versions/{segment(version)}" if version else place), as_json)


async def _until_told(work: Coroutine[Any, Any, None]) -> None:
    """Runs `work` until it ends or a signal says stop."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with suppress(asyncio.CancelledError):
        await task


def _settings() -> Settings:
    try:
        return Settings()
    except ValidationError as error:
        missing = ", ".join(f"MOTET_{str(each['loc'][0]).upper()}" for each in error.errors())
        raise CommandFailed(f"These variables are missing or wrong: {missing}.") from error


def _limits(requests: int | None, tokens: int | None, parallel: int | None) -> dict[str, Any]:
    named = {"requests_per_minute": requests, "tokens_per_minute": tokens, "max_parallel": parallel}
    return {name: value for name, value in named.items() if value is not None}
