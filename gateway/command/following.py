"""`motet changes`: what changes, as it happens."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from gateway.command.access import Access
from gateway.command.api import Api, CommandFailed, Refused, Unreachable
from gateway.command.options import AsJson, Key, MaybeTenant, Token, Url
from gateway.command.output import says_why

SILENT_S: Final = 45.0
"""A stream says something more often than that."""
AGAIN_S: Final = (1.0, 5.0)


@says_why
def follow_changes(
    url: Url = None,
    admin_token: Token = None,
    api_key: Key = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only these: repeat for several.")] = None,
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """Follow what changes, until you stop it: of all tenants, or of one. Read again what it names."""
    access = Access.gather(url, admin_token, api_key)
    if tenant is None:
        api, path = access.admin(), "/api/v1/changes"
    else:
        api, root = access.of_tenant(tenant)
        path = f"{root}/changes"
    for event, data in followed(api, path):
        if event == "change" and (not kind or data["kind"] in kind):
            typer.echo(json.dumps(data) if as_json else _line(data))
        elif event == "missed":
            typer.echo("Something may be missing here: read all.", err=True)


def followed(api: Api, path: str) -> Iterator[tuple[str, Any]]:
    """(event, data) without end, over cuts: `change`, and `missed` where some may be. Raises
    `CommandFailed` for what asking again does not help."""
    place: str | None = None
    while True:
        try:
            for event, data, position in api.events(path, place, SILENT_S):
                place = position or place
                if event == "change":
                    yield event, data
                elif event == "reset" or (event == "begin" and not data["complete"]):
                    yield "missed", None
        except Unreachable:
            if place is None:
                raise
        except Refused as refused:
            if refused.status < 500 and refused.status != 429:
                raise
            if place is None:
                raise CommandFailed(str(refused)) from refused
        time.sleep(random.uniform(*AGAIN_S))  # noqa: S311  no secret


def _line(change: dict[str, Any]) -> str:
    at = datetime.fromisoformat(change["at"]).astimezone().strftime("%H:%M:%S")
    of = change["tenant"] or "platform"
    return f"{at}  {change['kind']:<10}  {of}  {', '.join(change['objects']) or '-'}"
