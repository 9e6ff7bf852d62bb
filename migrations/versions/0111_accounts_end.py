"""Accounts go with their last membership."""

from __future__ import annotations

from migrations.ddl import run

revision = "0111"
down_revision = "0101"


def upgrade() -> None:
    run("GRANT DELETE ON admins, admin_tokens TO motet_system")


def downgrade() -> None:
    run("REVOKE DELETE ON admins, admin_tokens FROM motet_system")
