"""Attempts that wait for their count get a table of their own, which outlives a crash of PostgreSQL.

They lay in the staging table, which is unlogged: after a crash nobody would have known that they bill
nothing.
"""

from __future__ import annotations

from migrations.ddl import run

revision = "0006"
down_revision = "0005"

WAITING = "'00000000-0000-0000-0000-000000000000'"
"""The batch under which they lay there."""


def upgrade() -> None:
    run(
        "CREATE TABLE usage_uncounted (LIKE usage_staging INCLUDING DEFAULTS INCLUDING CONSTRAINTS)",
        f"INSERT INTO usage_uncounted SELECT * FROM usage_staging WHERE batch = {WAITING}",  # noqa: S608  a constant
        f"DELETE FROM usage_staging WHERE batch = {WAITING}",  # noqa: S608
        "ALTER TABLE usage_uncounted DROP COLUMN batch, ADD PRIMARY KEY (request_id, attempt)",
        "GRANT SELECT, INSERT, DELETE ON usage_uncounted TO motet_system",
    )


def downgrade() -> None:
    run(
        f"INSERT INTO usage_staging SELECT *, {WAITING} FROM usage_uncounted",  # noqa: S608
        "DROP TABLE usage_uncounted",
    )
