"""`motet limits`: what tenants, keys and adapters are held to, and what is left of it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.command.access import tenant_id
from gateway.command.api import Api, CommandFailed, segment
from gateway.command.options import AsJson, TenantName, access_of, connect
from gateway.command.output import says_why, show, show_list

limits = typer.Typer(
    no_args_is_help=True, callback=connect, help="Show and set limits and budgets; see what is left."
)

MaybeKey = Annotated[str | None, typer.Option("--key", help="Of this key: its public part.")]
MaybeAdapter = Annotated[str | None, typer.Option("--adapter", help="Of this adapter, by its name.")]
DemoTenant = Annotated[str | None, typer.Option("--tenant", help="With the demo's key of this tenant.")]
Count = Annotated[int | None, typer.Option(min=1)]
Money = Annotated[str | None, typer.Option(help="In the price book's currency, such as 250.00.")]
COLUMNS = ["limit_id", "limit", "remaining", "reserved", "reset", "resets_at"]


@limits.command("show")
@says_why
def show_limits(
    context: typer.Context,
    tenant: TenantName,
    key: MaybeKey = None,
    adapter: MaybeAdapter = None,
    as_json: AsJson = False,
) -> None:
    """What is set."""
    api = access_of(context).admin()
    show(api.get(_place(api, tenant, key, adapter)), as_json)


@limits.command("set")
@says_why
def set_limits(  # noqa: PLR0913, PLR0917  its parameters are options
    context: typer.Context,
    tenant: TenantName,
    key: MaybeKey = None,
    adapter: MaybeAdapter = None,
    requests_per_minute: Count = None,
    tokens_per_minute: Count = None,
    input_tokens_per_minute: Count = None,
    output_tokens_per_minute: Count = None,
    max_parallel: Count = None,
    budget_day: Money = None,
    budget_month: Money = None,
    soft: Annotated[bool, typer.Option(help="The budgets named here tell and don't refuse.")] = False,
    without: Annotated[
        list[str] | None, typer.Option(help="Take a limit away: its name, such as max_parallel; repeat.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change limits and budgets of a tenant, or of one of its keys or adapters."""
    counts = {
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "input_tokens_per_minute": input_tokens_per_minute,
        "output_tokens_per_minute": output_tokens_per_minute,
        "max_parallel": max_parallel,
    }
    amounts = {"budget_day": budget_day, "budget_month": budget_month}
    changes: dict[str, Any] = {name: value for name, value in counts.items() if value is not None}
    changes |= {
        name: {"amount": amount, "hard": not soft} for name, amount in amounts.items() if amount is not None
    }
    changes |= {name.replace("-", "_"): None for name in without or []}
    api = access_of(context).admin()
    show(api.patch(_place(api, tenant, key, adapter), changes), as_json)


@limits.command("now")
@says_why
def limits_now(
    context: typer.Context,
    tenant: DemoTenant = None,
    model: Annotated[str | None, typer.Option(help="With the limits of its adapter.")] = None,
    as_json: AsJson = False,
) -> None:
    """What is left, as a tenant's key sees it."""
    api = access_of(context).of_key(tenant)
    show_list(api.get("/v1/limits", model=model)["data"], COLUMNS, as_json)


@limits.command("simulate")
@says_why
def simulate(
    context: typer.Context,
    model: str,
    prompt_tokens: Annotated[int, typer.Option(min=1)],
    max_tokens: Annotated[int, typer.Option(min=1)],
    tenant: DemoTenant = None,
    as_json: AsJson = False,
) -> None:
    """What a request would be told by the limits now; takes nothing."""
    api = access_of(context).of_key(tenant)
    wanted = {"model": model, "prompt_tokens": prompt_tokens, "max_tokens": max_tokens}
    found = api.post("/v1/limits/simulate", wanted)
    if as_json:
        show(found, as_json)
        return
    show({"allowed": found["allowed"], "message": found["message"], **found["needed"]}, as_json)
    show_list(found["limits"], COLUMNS, as_json)


def _place(api: Api, tenant: str, key: str | None, adapter: str | None) -> str:
    if key is not None and adapter is not None:
        raise CommandFailed("Name a key or an adapter, not both.")
    root = f"/api/v1/tenants/{tenant_id(api, tenant)}"
    if key is not None:
        return f"{root}/keys/{segment(key)}/limits"
    if adapter is not None:
        return f"{root}/adapters/{segment(adapter)}/limits"
    return f"{root}/limits"
