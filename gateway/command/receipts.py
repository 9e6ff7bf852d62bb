"""`motet usage receipt`, `receipt-keys` and `verify`."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from gateway.command.api import CommandFailed, segment
from gateway.command.options import AsJson, MaybeTenant, access_of
from gateway.command.output import says_why, show, show_list
from gateway.receipts.export_check import Export
from gateway.receipts.verification import CanNotRead, Fault, Verified, read_keys, verify

MOST_SHOWN = 100

RequestId = Annotated[str, typer.Argument(help="The answer's x-request-id.")]
Receipts = Annotated[Path, typer.Argument(help="Receipts, or JSON lines that hold them; - is stdin.")]
Keys = Annotated[
    Path, typer.Option("--keys", envvar="MOTET_RECEIPT_KEYS", help="What `usage receipt-keys --json` prints.")
]
ExportFolder = Annotated[
    Path | None,
    typer.Option("--export", help="Folder of an export, which is checked too."),
]
Whole = Annotated[
    bool, typer.Option("--whole", help="There is a receipt of every request: rows must not have more.")
]


def add_to(usage: typer.Typer) -> None:
    usage.command("receipt")(show_receipt)
    usage.command("receipt-keys")(show_keys)
    usage.command("verify")(verify_receipts)


@says_why
def show_receipt(
    context: typer.Context, request_id: RequestId, tenant: MaybeTenant = None, as_json: AsJson = False
) -> None:
    """What a request used, signed."""
    api, root = access_of(context).of_tenant(tenant)
    show(api.get(f"{root}/usage/{segment(request_id)}/receipt"), as_json)


@says_why
def show_keys(context: typer.Context, tenant: MaybeTenant = None, as_json: AsJson = False) -> None:
    """The keys that check receipts offline. Keep them as you keep an API key."""
    api, root = access_of(context).of_tenant(tenant)
    found = api.get(f"{root}/usage/receipt-keys")
    if as_json:
        show(found, as_json)
    else:
        show_list(found["data"], ["id", "key", "current"], as_json)


@says_why
def verify_receipts(
    receipts: Receipts,
    keys: Keys,
    export: ExportFolder = None,
    whole: Whole = False,
    as_json: AsJson = False,
) -> None:
    """Check receipts, and an export against them, without asking anybody. Ends with 1 when anything does not
    hold."""
    if whole and export is None:
        raise CommandFailed("--whole is about an export: name it with --export.")
    try:
        done = _verified(receipts, keys)
        faults = list(done.faults)
        if export is not None:
            faults += Export.open(export).faults(done.receipts, whole=whole)
    except CanNotRead as error:
        raise CommandFailed(f"{error}.") from error
    told = {
        "receipts": len(done.receipts),
        "repeated": done.repeated,
        "input_tokens": sum(receipt.input_tokens for receipt in done.receipts),
        "cached_tokens": sum(receipt.cached_tokens for receipt in done.receipts),
        "output_tokens": sum(receipt.output_tokens for receipt in done.receipts),
        "faults": len(faults),
    }
    if as_json:
        show({**told, "faults": [{"place": each.place, "reason": each.reason} for each in faults]}, as_json)
    else:
        show(told, as_json)
        _tell(faults)
    if faults:
        raise typer.Exit(1)


def _verified(receipts: Path, keys: Path) -> Verified:
    try:
        with ExitStack() as stack:
            held = read_keys(keys.read_text())
            lines = (
                sys.stdin
                if str(receipts) == "-"
                else stack.enter_context(receipts.open(encoding="utf-8", errors="replace"))
            )
            return verify(lines, held)
    except CanNotRead as error:
        raise CommandFailed(f"{keys} can't be used: {error}.") from error
    except OSError as error:
        raise CommandFailed(f"{error.filename} can't be read: {error.strerror}.") from error


def _tell(faults: list[Fault]) -> None:
    for each in faults[:MOST_SHOWN]:
        typer.echo(f"{each.place}: {each.reason}", err=True)
    if len(faults) > MOST_SHOWN:
        typer.echo(f"and {len(faults) - MOST_SHOWN} more", err=True)
