"""`motet adapters diff`: what one version has otherwise than another."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.command.api import segment
from gateway.command.options import AsJson, MaybeTenant, access_of
from gateway.command.output import says_why, show, show_list

differences = typer.Typer()

FIELDS = ["group", "name", "old", "new"]
MODULES = ["layer", "site", "old", "new"]
ANSWERS = ["input", "old", "new"]


@differences.command("diff")
@says_why
def diff(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The adapter's name.")],
    old: Annotated[int, typer.Argument(min=1, help="A version.")],
    new: Annotated[int, typer.Argument(min=1, help="Another one.")],
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """What changed from one version to another: config, ranks and scales, sizes, proof figures, answers."""
    api, root = access_of(context).of_tenant(tenant)
    found = api.get(f"{root}/adapters/{segment(name)}/versions/{old}/diff/{new}")
    if as_json:
        show(found, as_json)
        return
    show_list(_changed(found["fields"]), FIELDS, as_json=False)
    show_list([_module(each) for each in _changed(found["modules"])], MODULES, as_json=False)
    show_list([_answer(each) for each in _changed(found["answers"])], ANSWERS, as_json=False)


def _changed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["changed"]]


def _module(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, **{side: _figures(row[side]) for side in ("old", "new")}}


def _figures(module: dict[str, Any] | None) -> str | None:
    if module is None:
        return None
    norms = f"|A| {module['a_norm']:g}, |B| {module['b_norm']:g}"
    return f"rank {module['rank']}, scale {module['scale']:g}, {norms}"


def _answer(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, **{side: row[side] and row[side]["text"] for side in ("old", "new")}}
