"""`motet migrate`: bring a database to the schema that this release was made for."""

from __future__ import annotations

from typing import Annotated

import typer
from alembic.util import CommandError
from sqlalchemy.exc import SQLAlchemyError

import migrations

app = typer.Typer(add_completion=False)


@app.command("migrate")
def migrate(
    database_url: Annotated[
        str, typer.Option(envvar="MOTET_DATABASE_OWNER_URL", help="As motet_owner.", show_default=False)
    ],
    revision: Annotated[str, typer.Option(help="Up to this revision.")] = "head",
) -> None:
    """Run the migrations that are missing, all of them or none."""
    try:
        migrations.upgrade(database_url, revision)
    except (SQLAlchemyError, OSError, CommandError) as error:  # the last: it is newer than this release
        typer.echo(f"motet: the database could not be migrated: {str(error).splitlines()[0]}", err=True)
        raise typer.Exit(1) from error
    typer.echo(f"The database is at revision {migrations.head() if revision == 'head' else revision}.")
