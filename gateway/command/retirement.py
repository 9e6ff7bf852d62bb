"""`motet adapters`: what was deleted and can come back, what is to go for good, and the store beneath."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

import typer

from gateway.command.api import Api, CommandFailed, segment
from gateway.command.options import AsJson, MaybeTenant, access_of
from gateway.command.output import says_why, show, show_list

retirement = typer.Typer()

LOOK_S: Final = 1.0
STORE: Final = "/api/v1/store"
Name = Annotated[str, typer.Argument(help="name for all versions, or name@version")]
Wait = Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait for the end.")]


@retirement.command("retired")
@says_why
def list_retired(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Default: all adapters.")] = None,
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """What was deleted and can be restored."""
    api, root = access_of(context).of_tenant(tenant)
    if name is None:
        listed = api.pages(f"{root}/adapters", state="retired")
        show_list(listed, ["name", "latest", "base", "created_at"], as_json)
    else:
        listed = api.pages(f"{root}/adapters/{segment(name)}/versions", state="retired")
        show_list(listed, ["id", "bytes", "retired_at", "purges_at"], as_json)


@retirement.command("restore")
@says_why
def restore(
    context: typer.Context,
    name: Name,
    aliases: Annotated[
        bool, typer.Option(help="Point the aliases that it had to it again, where they are free.")
    ] = False,
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """Bring a deleted adapter, or one version of it, back within its retention."""
    api, place = _place(context, name, tenant)
    restored = api.post(f"{place}/restore", {"aliases": aliases})
    if as_json:
        show(restored, as_json)
        return
    show_list(restored["versions"], ["id", "state", "aliases", "bytes"], as_json)
    left = {field: restored[field] for field in ("aliases", "aliases_left", "gone") if restored[field]}
    show(left, as_json)


@retirement.command("purge")
@says_why
def purge(
    context: typer.Context,
    name: Name,
    confirm: Annotated[str | None, typer.Option(help="What to purge again; asked for if absent.")] = None,
    wait_s: Wait = 60,
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """Delete an adapter's bytes for good, in the store and on all replicas."""
    api, place = _place(context, name, tenant)
    typed = typer.prompt(f"Type what to purge for good ({name})") if confirm is None else confirm
    found = api.post(f"{place}/purge", {"confirm": typed})
    until = time.monotonic() + wait_s
    while found["state"] == "purging" and time.monotonic() < until:
        time.sleep(LOOK_S)
        found = api.get(f"{place}/purge")
    if as_json:
        show(found, as_json)
        return
    counts = {field: found[field] for field in ("id", "state", "num_purging", "num_purged", "num_kept")}
    show(counts, as_json)
    show_list(found["versions"], ["version", "state", "kept_for", "artefact"], as_json)


@retirement.command("store")
@says_why
def show_store(context: typer.Context, as_json: AsJson = False) -> None:
    """Whether the object store answers, what is lost in it, and the last check of it."""
    found = access_of(context).admin().get(STORE)
    last = found["last_check"]
    brief = None if last is None else {field: last[field] for field in ("id", "state", "clean", "ended_at")}
    show(found if as_json else {**found, "last_check": brief}, as_json)


@retirement.command("fsck")
@says_why
def fsck(
    context: typer.Context,
    repair: Annotated[bool, typer.Option("--repair", help="Mend what can be mended.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Read every artefact, not a sample.")] = False,
    wait_s: Wait = 600,
    as_json: AsJson = False,
) -> None:
    """Check the object store against the catalog; ends with code 1 unless all is well."""
    api = access_of(context).admin()
    check = api.post(f"{STORE}/fsck", {"repair": repair, "depth": "full" if full else "sampled"})
    until = time.monotonic() + wait_s
    while check["state"] in ("waiting", "running"):
        if time.monotonic() > until:
            raise CommandFailed(f"The check {check['id']} has not ended; control goes on with it.")
        time.sleep(LOOK_S)
        check = api.get(f"{STORE}/fsck/{check['id']}")
    if check["state"] == "failed":
        raise CommandFailed(f"The store can't be checked: {check['error']}")
    _show_check(check, as_json)
    if not check["clean"]:
        raise typer.Exit(1)


def _show_check(check: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show(check, as_json)
        return
    found = dict(check["found"])
    examples = found.pop("examples")
    show({"clean": check["clean"], **found}, as_json)
    show_list(examples, ["what", "path"], as_json)


def _place(context: typer.Context, name: str, tenant: str | None) -> tuple[Api, str]:
    api, root = access_of(context).of_tenant(tenant)
    bare, _, version = name.partition("@")
    place = f"{root}/adapters/{segment(bare)}"
    return api, f"{place}/versions/{segment(version)}" if version else place
