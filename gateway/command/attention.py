"""`motet attention`: what an operator should look at first."""

from __future__ import annotations

import typer

from gateway.command.access import Access
from gateway.command.options import AsJson, Token, Url
from gateway.command.output import says_why, show, show_list

attention = typer.Typer(help="What needs an operator's attention first, and the queue as it is now.")

COLUMNS = ["severity", "kind", "message", "tenant_name", "since"]


@attention.callback(invoke_without_command=True)
@says_why
def show_attention(url: Url = None, admin_token: Token = None, as_json: AsJson = False) -> None:
    """The worst first; nothing when all is well."""
    found = Access.gather(url, admin_token, None).admin().get("/api/v1/attention")
    if as_json:
        show(found, as_json)
        return
    show(found["queue"], as_json)
    if found["data"]:
        show_list(found["data"], COLUMNS, as_json)
    else:
        typer.echo("Nothing needs attention.")
