"""The zone of a tenant's days, and why an export failed, as a word that a program reads.

A gateway of before goes on: its tenants' days are UTC's, and its exports fail with a sentence only.
"""

from __future__ import annotations

from migrations.ddl import run

revision = "0119"
down_revision = "0118"


def upgrade() -> None:
    run(
        "ALTER TABLE tenants ADD COLUMN reporting_zone text NOT NULL DEFAULT 'UTC'",
        "ALTER TABLE billing_exports ADD COLUMN failure text",
    )


def downgrade() -> None:
    run(
        "ALTER TABLE billing_exports DROP COLUMN failure",
        "ALTER TABLE tenants DROP COLUMN reporting_zone",
    )
