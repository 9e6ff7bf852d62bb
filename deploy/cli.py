"""The `motet` command.

A sub-command's module is imported only when it is the one asked for: torch and litestar are heavy.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

import typer


@dataclass(frozen=True)
class SubCommand:
    """`module.app` is a Typer that is this command, or (`shared`) that holds it among others."""

    name: str
    module: str
    summary: str
    shared: bool = True


SUB_COMMANDS = (
    SubCommand("up", "deploy.local.cli", "Start the whole platform on this machine."),
    SubCommand("gateway", "gateway.cli", "Run the gateway: the public API."),
    SubCommand("engine", "engine.cli", "Run one replica: the base model and its adapters.", shared=False),
    SubCommand(
        "control", "gateway.cli", "Run the control process: ledger drain, reconciliation, partitions."
    ),
    SubCommand("migrate", "deploy.migrate", "Bring the database to this release's schema."),
    SubCommand("models", "deploy.local.cli", "Import base models."),
    SubCommand("tenants", "gateway.cli", "Make and change tenants."),
    SubCommand("keys", "gateway.cli", "Make, change, rotate and revoke API keys."),
    SubCommand("members", "gateway.cli", "Members of tenants, and their tokens."),
    SubCommand("adapters", "gateway.cli", "Upload, list and delete adapters."),
    SubCommand("limits", "gateway.cli", "Show and set limits and budgets; see what is left."),
    SubCommand("usage", "gateway.cli", "What a tenant used, by day and adapter."),
    SubCommand("billing", "gateway.cli", "Price book, statements, re-rating."),
    SubCommand("requests", "gateway.cli", "Requests of the last days: why one was refused or slow."),
    SubCommand("webhooks", "gateway.cli", "Where a tenant is told of events."),
    SubCommand("replicas", "gateway.cli", "List, register, drain and remove replicas."),
    SubCommand("bases", "gateway.cli", "List bases, and move one to other weights."),
    SubCommand("placement", "gateway.cli", "Where adapters lie, are wanted, and what moves."),
    SubCommand("changes", "gateway.cli", "Follow what changes, as it happens."),
    SubCommand("audit", "gateway.cli", "Read and verify the audit log."),
    SubCommand("attention", "gateway.cli", "What to look at first, and the queue as it is now."),
    SubCommand("doctor", "gateway.cli", "Find out why people can't reach the admin UI, or log in."),
)


def main() -> None:
    build_app(sys.argv[1:])()


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """The application for these arguments: only the module asked for is loaded, the rest is help."""
    app = typer.Typer(
        name="motet", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
    )
    app.callback()(_root)
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    loaded = next((sub for sub in SUB_COMMANDS if sub.name == wanted), None)
    if loaded is not None:
        part: typer.Typer = importlib.import_module(loaded.module).app
        app.add_typer(part, name=None if loaded.shared else loaded.name)
    for sub in SUB_COMMANDS:
        if loaded is None or sub.module != loaded.module:
            app.command(sub.name, help=sub.summary)(_not_loaded)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"motet {version('motet')}")
        raise typer.Exit


def _root(
    _version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
    ),
) -> None:
    """Motet: one base model, every tenant's adapters, one batch."""


def _not_loaded() -> None:
    raise AssertionError("a command that is run is always loaded")


if __name__ == "__main__":
    main()
