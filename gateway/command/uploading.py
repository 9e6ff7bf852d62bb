"""`motet adapters upload`: a folder's files, sent so that nothing but a change of them begins anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from gateway.catalog.names import LIVE
from gateway.catalog.parts import ACCEPTANCE_PART, CONFIG_PART, WEIGHTS_PART
from gateway.command.api import Api, CommandFailed, Refused, Unreachable, segment
from gateway.command.options import AsJson, MaybeTenant, access_of
from gateway.command.output import says_why, show
from gateway.command.resumable import FileUpload, Patience, Told, Waiting
from gateway.command.upload_state import UploadState, default_folder

PROOF_S: Final = 900.0
"""For the proof at the end of a large upload."""
_SHOWN_REASON: Final = 60


@says_why
def upload_adapter(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(help=f"Holds {CONFIG_PART} and {WEIGHTS_PART}, and maybe {ACCEPTANCE_PART}.")
    ],
    name: Annotated[str | None, typer.Option(help="Default: the folder's name.")] = None,
    alias: Annotated[str, typer.Option(help="Points to it once it is ready; or none.")] = LIVE,
    give_up: Annotated[
        float, typer.Option(min=0, help="Seconds without progress after which to give up.")
    ] = Patience().give_up_s,
    tenant: MaybeTenant = None,
    as_json: AsJson = False,
) -> None:
    """Upload an adapter. Started again after a failure, it goes on where it was."""
    files = files_of(folder)
    api, root = access_of(context).of_tenant(tenant)
    state = UploadState(default_folder(), f"{api.url} {root}")
    with _watched(files, silent=as_json) as told:
        wanted = Wanted(name or folder.resolve().name, files, alias)
        made = upload(api, root, wanted, state, told, Patience(give_up))
    show(made, as_json)


def files_of(folder: Path) -> list[Path]:
    """Raises `CommandFailed` for a folder that holds no adapter."""
    for part in (CONFIG_PART, WEIGHTS_PART):
        if not (folder / part).is_file():
            raise CommandFailed(f"{folder} holds no {part}.")
        if (folder / part).stat().st_size == 0:
            raise CommandFailed(f"{folder / part} is empty.")
    optional = folder / ACCEPTANCE_PART
    return [folder / CONFIG_PART, folder / WEIGHTS_PART, *([optional] if optional.is_file() else [])]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to become of files."""

    name: str
    files: Sequence[Path]
    alias: str = LIVE


def upload(api: Api, root: str, wanted: Wanted, state: UploadState, told: Told, patience: Patience) -> Any:
    """The version that they have become. Raises `CommandFailed`."""
    files = wanted.files
    ids = [FileUpload(api, root, file, state, told, patience).send() for file in files]
    target = f"{root}/adapters/{segment(wanted.name)}/versions?alias={segment(wanted.alias)}"
    waiting = Waiting(patience, told)
    told.waiting("proving")
    while True:
        try:
            made = api.post(target, {"uploads": ids}, PROOF_S)
        except Refused as refused:
            # The gateway keeps no files that it refused, or made part of another version.
            if refused.status in (400, 404, 413, 422) or refused.code == "upload_taken":
                _forget(state, files)
            waiting.after(refused)
        except Unreachable as failed:
            waiting.after(failed)
        else:
            _forget(state, files)
            return made


def _forget(state: UploadState, files: Sequence[Path]) -> None:
    for file in files:
        state.forget(file)


@contextmanager
def _watched(files: Sequence[Path], *, silent: bool) -> Iterator[Told]:
    """A bar over all files, on stderr."""
    sizes = {file.name: file.stat().st_size for file in files}
    there = dict.fromkeys(sizes, 0)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    with Progress(*columns, disable=silent, transient=True, console=console) as progress:
        task = progress.add_task("uploading", total=sum(sizes.values()))

        def at(file: str, num_bytes: int) -> None:
            there[file] = num_bytes
            progress.update(task, completed=sum(there.values()), description=f"uploading {file}")

        def waiting(why: str) -> None:
            short = why if len(why) <= _SHOWN_REASON else f"{why[:_SHOWN_REASON]}…"
            progress.update(task, description=short)

        yield Told(at, waiting)
