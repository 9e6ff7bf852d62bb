"""`motet adapters rollout`: a new version's way into an alias."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.command.api import CommandFailed, segment
from gateway.command.options import AsJson, MaybeTenant, access_of
from gateway.command.output import says_why, show, show_list

rollout = typer.Typer(no_args_is_help=True, help="Step an alias to another version, and back by itself.")

COLUMNS = ["id", "alias", "from_version", "to_version", "state", "step", "created_at", "ended_at"]
SIDES = ["version", "requests", "failed", "error_rate", "not_finite", "ttft_ms_p50", "ttft_ms_p95"]
Name = Annotated[str, typer.Argument(help="The adapter's name.")]
Id = Annotated[str, typer.Argument(help="The rollout's id.")]


@rollout.command("start")
@says_why
def start(
    context: typer.Context,
    name: Name,
    to: Annotated[int, typer.Argument(min=1, help="The version that the alias is to become.")],
    alias: str = "live",
    step: Annotated[
        list[str] | None,
        typer.Option(help="WEIGHT, or WEIGHT:HOLD_S:MIN_REQUESTS; repeat. Default: 4 steps."),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="JSON: rollback_on, acceptance, steps.")
    ] = None,
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """Begin one."""
    api, root = access_of(context).of_tenant(tenant)
    wanted = {} if plan is None else _read(plan)
    wanted |= {"alias": alias, "to": to}
    if step:
        wanted["steps"] = [_step(each) for each in step]
    _show(api.post(f"{root}/adapters/{segment(name)}/rollouts", wanted), as_json)


@rollout.command("list")
@says_why
def list_rollouts(
    context: typer.Context, name: Name, tenant: MaybeTenant = None, as_json: AsJson = False
) -> None:
    """An adapter's rollouts, newest first."""
    api, root = access_of(context).of_tenant(tenant)
    show_list(api.pages(f"{root}/adapters/{segment(name)}/rollouts"), COLUMNS, as_json)


@rollout.command("show")
@says_why
def show_rollout(
    context: typer.Context, name: Name, rollout_id: Id, tenant: MaybeTenant = None, as_json: AsJson = False
) -> None:
    """One rollout: old and new beside each other, and what happened."""
    api, root = access_of(context).of_tenant(tenant)
    found = api.get(f"{root}/adapters/{segment(name)}/rollouts/{segment(rollout_id)}")
    _show(found, as_json)
    if not as_json:
        show_list([found["old"], found["new"]], SIDES, as_json=False)
        show_list(found["events"], ["at", "event", "actor", "details"], as_json=False)


@rollout.command("pause")
@says_why
def pause(
    context: typer.Context, name: Name, rollout_id: Id, tenant: MaybeTenant = None, as_json: AsJson = False
) -> None:
    """Go no step further; it still rolls back by itself."""
    _do(context, name, rollout_id, "pause", tenant, as_json)


@rollout.command("resume")
@says_why
def resume(
    context: typer.Context, name: Name, rollout_id: Id, tenant: MaybeTenant = None, as_json: AsJson = False
) -> None:
    """Go on."""
    _do(context, name, rollout_id, "resume", tenant, as_json)


@rollout.command("promote")
@says_why
def promote(
    context: typer.Context, name: Name, rollout_id: Id, tenant: MaybeTenant = None, as_json: AsJson = False
) -> None:
    """End it: the alias is the new version's."""
    _do(context, name, rollout_id, "promote", tenant, as_json)


@rollout.command("rollback")
@says_why
def roll_back(
    context: typer.Context, name: Name, rollout_id: Id, tenant: MaybeTenant = None, as_json: AsJson = False
) -> None:
    """End it: the alias is the old version's again."""
    _do(context, name, rollout_id, "rollback", tenant, as_json)


def _do(
    context: typer.Context, name: str, rollout_id: str, what: str, tenant: str | None, as_json: bool
) -> None:
    api, root = access_of(context).of_tenant(tenant)
    place = f"{root}/adapters/{segment(name)}/rollouts/{segment(rollout_id)}/{what}"
    _show(api.post(place, {}), as_json)


def _show(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show(found, as_json)
        return
    steps = ", ".join(f"{step['weight']}%" for step in found["steps"])
    reason = found["reason"]["message"] if found["reason"] else None
    shown = {column: found[column] for column in COLUMNS}
    show({**shown, "steps": steps, "reason": reason}, as_json)


def _step(text: str) -> dict[str, int]:
    """Raises `CommandFailed`."""
    parts = text.split(":")
    if not 1 <= len(parts) <= 3 or not all(part.isdigit() for part in parts):
        raise CommandFailed(f"'{text}' is not WEIGHT or WEIGHT:HOLD_S:MIN_REQUESTS.")
    return dict(zip(("weight", "hold_s", "min_requests"), map(int, parts), strict=False))


def _read(plan: Path) -> dict[str, Any]:
    """Raises `CommandFailed`."""
    try:
        found = json.loads(plan.read_text())
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{plan} can't be read as JSON: {error}.") from error
    if not isinstance(found, dict):
        raise CommandFailed(f"{plan} holds no object.")
    return found
