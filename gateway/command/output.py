"""What commands print: JSON for programs, tables for people, one line for what went wrong."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.command.api import CommandFailed

WIDEST = 10_000  # characters of a line that no terminal shows

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

P = ParamSpec("P")
T = TypeVar("T")


def says_why(command: Callable[P, T]) -> Callable[P, T]:
    """A command that ends with one line on stderr and code 1 when it failed."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except CommandFailed as error:
            typer.echo(f"motet: {error}", err=True)
            raise typer.Exit(1) from error

    return wrapped


def show(answer: Any, as_json: bool) -> None:
    """One thing: JSON, or a line for each field."""
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
        return
    width = max(map(len, answer), default=0)
    for name, value in answer.items():
        typer.echo(f"{name:<{width}}  {_text(value)}")


def show_list(rows: Iterable[Mapping[str, Any]], columns: Iterable[str], as_json: bool) -> None:
    """Many: JSON, or a table of some fields."""
    rows = list(rows)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(_text(row.get(column))) for column in columns))  # as it stands: no markup
    console = Console()
    if not console.is_terminal:  # a pipe or a file has no width: nothing is cut there
        console = Console(width=WIDEST)
    console.print(table)


def _text(value: Any) -> str:
    """Without what would steer the terminal: some of it is tenants' own words, which operators read."""
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", _written(value))


def _written(value: Any) -> str:
    match value:
        case None:
            return "-"
        case list():
            return ", ".join(map(str, value)) or "-"
        case dict():
            return ", ".join(f"{key}={inner}" for key, inner in value.items()) or "-"
        case _:
            return str(value)
