"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.command.access import Access

Url = Annotated[str | None, typer.Option(envvar="MOTET_URL", help="The gateway's URL.")]
Token = Annotated[str | None, typer.Option(envvar="MOTET_ADMIN_TOKEN", help="An operator's token.")]
Key = Annotated[str | None, typer.Option(envvar="MOTET_API_KEY", help="A tenant's API key.")]
TenantName = Annotated[str, typer.Option("--tenant", help="The tenant's name.")]
MaybeTenant = Annotated[str | None, typer.Option("--tenant", help="The tenant's name.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Month = Annotated[str | None, typer.Option(help="UTC month: YYYY-MM. Default: this one.")]


def connect(context: typer.Context, url: Url = None, admin_token: Token = None, api_key: Key = None) -> None:
    context.obj = Access.gather(url, admin_token, api_key)


def access_of(context: typer.Context) -> Access:
    assert isinstance(context.obj, Access)
    return context.obj
