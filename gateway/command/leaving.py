"""`motet tenants`: letting a tenant in no more, seeing it off, and how long its things are kept."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.command.access import tenant_id
from gateway.command.api import Api, CommandFailed
from gateway.command.options import AsJson, access_of
from gateway.command.output import says_why, show, show_list

leaving = typer.Typer()

Reason = Annotated[str, typer.Option(help="For the audit log.")]


@leaving.command("suspend")
@says_why
def suspend(context: typer.Context, name: str, reason: Reason = "", as_json: AsJson = False) -> None:
    """Let no request of a tenant in. What runs ends as it would."""
    api, root = _tenant(context, name)
    show(api.post(f"{root}/suspend", {"reason": reason}), as_json)


@leaving.command("resume")
@says_why
def resume(context: typer.Context, name: str, as_json: AsJson = False) -> None:
    """Let a suspended tenant's requests in again."""
    api, root = _tenant(context, name)
    show(api.post(f"{root}/resume", {}), as_json)


@leaving.command("offboard")
@says_why
def offboard(
    context: typer.Context,
    name: str,
    confirm: Annotated[str | None, typer.Option(help="The tenant's name again; asked for if absent.")] = None,
    grace_h: Annotated[int | None, typer.Option(min=1, max=2_160, help="Hours until the purge.")] = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Suspend a tenant now and purge it after its grace, but for what the law has kept."""
    api, root = _tenant(context, name)
    typed = typer.prompt(f"Type the tenant's name to off-board it ({name})") if confirm is None else confirm
    wanted: dict[str, Any] = {"confirm": typed, "reason": reason}
    if grace_h is not None:
        wanted["grace_h"] = grace_h
    show(api.post(f"{root}/offboarding", wanted), as_json)


@leaving.command("undo-offboard")
@says_why
def undo(context: typer.Context, name: str, as_json: AsJson = False) -> None:
    """As long as the grace lasts: the tenant is as it was."""
    api, root = _tenant(context, name)
    show(api.delete(f"{root}/offboarding"), as_json)


@leaving.command("offboarding")
@says_why
def show_offboarding(context: typer.Context, name: str, as_json: AsJson = False) -> None:
    """How far a tenant's off-boarding is, and the proof of its purge. After it, name the tenant by its id."""
    api, root = _tenant(context, name)
    found = api.get(f"{root}/offboarding")
    if as_json:
        show(found, as_json)
        return
    proof = found["proof"]
    plain = {field: value for field, value in found.items() if field not in ("steps", "proof")}
    show({**plain, "proof": None if proof is None else proof["digest"]}, as_json)
    show_list(found["steps"], ["kind", "found", "digest", "done_at"], as_json)
    if proof is not None:
        show_list(proof["kept"], ["table", "rows", "why"], as_json)


@leaving.command("retention")
@says_why
def retention(
    context: typer.Context,
    name: str,
    keep: Annotated[
        list[str] | None, typer.Option(help="KIND=DAYS, or KIND=default; repeat for several.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how long a tenant's things are kept, or change it."""
    api, root = _tenant(context, name)
    path = f"{root}/retention"
    changes = dict(_rule(each) for each in keep or [])
    found = api.patch(path, {"days": changes}) if changes else api.get(path)
    if as_json:
        show(found, as_json)
    else:
        show_list(found["rules"], ["kind", "days", "default_days", "what"], as_json)


def _tenant(context: typer.Context, name: str) -> tuple[Api, str]:
    api = access_of(context).admin()
    return api, f"/api/v1/tenants/{tenant_id(api, name)}"


def _rule(text: str) -> tuple[str, int | None]:
    kind, _, days = text.partition("=")
    if days == "default":
        return kind, None
    if not days.isascii() or not days.isdigit():
        raise CommandFailed(f"'{text}' is not KIND=DAYS.")
    return kind, int(days)
