"""`motet adapters aliases`: where the names of a tenant's adapters point."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.command.api import CommandFailed, segment
from gateway.command.options import AsJson, MaybeTenant, access_of
from gateway.command.output import says_why, show, show_list

aliases = typer.Typer(no_args_is_help=True, help="Where an adapter's aliases point.")

COLUMNS = ["alias", "version", "weights", "revision", "updated_at"]
Name = Annotated[str, typer.Argument(help="The adapter's name.")]
Alias = Annotated[str, typer.Argument(help="live, or any other.")]


@aliases.command("list")
@says_why
def list_aliases(
    context: typer.Context, name: Name, tenant: MaybeTenant = None, as_json: AsJson = False
) -> None:
    """An adapter's aliases."""
    api, root = access_of(context).of_tenant(tenant)
    show_list(api.pages(f"{root}/adapters/{segment(name)}/aliases"), COLUMNS, as_json)


@aliases.command("set")
@says_why
def set_alias(
    context: typer.Context,
    name: Name,
    alias: Alias,
    versions: Annotated[list[str], typer.Argument(help="3, or 3=95 4=5: percents, 100 in all.")],
    if_revision: Annotated[int | None, typer.Option(min=1, help="Only if it is at this revision.")] = None,
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """Point an alias to a version, or to several by weight."""
    api, root = access_of(context).of_tenant(tenant)
    place = f"{root}/adapters/{segment(name)}/aliases/{segment(alias)}"
    headers = {} if if_revision is None else {"if-match": f'"{if_revision}"'}
    show(api.put(place, {"weights": weights_of(versions)}, headers), as_json)


@aliases.command("delete")
@says_why
def delete_alias(
    context: typer.Context, name: Name, alias: Alias, tenant: MaybeTenant = None, as_json: AsJson = False
) -> None:
    """Delete an alias. Without `live`, the bare name is unknown."""
    api, root = access_of(context).of_tenant(tenant)
    show(api.delete(f"{root}/adapters/{segment(name)}/aliases/{segment(alias)}"), as_json)


def weights_of(versions: list[str]) -> dict[str, int]:
    """Version → percent; one alone has it all. Raises `CommandFailed`."""
    if len(versions) == 1 and versions[0].isdigit():
        return {versions[0]: 100}
    found: dict[str, int] = {}
    for each in versions:
        version, _, percent = each.partition("=")
        if not (version.isdigit() and percent.isdigit()) or version in found:
            raise CommandFailed(f"'{each}' is not VERSION=PERCENT, or a version twice.")
        found[version] = int(percent)
    return found
