"""The roles, where the deployment has not made them, and what they may reach at all."""

from __future__ import annotations

from migrations.ddl import run

revision = "0001"
down_revision = None

MAKE_ROLE = """
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN
    CREATE ROLE {role} NOLOGIN NOSUPERUSER NOBYPASSRLS;
  END IF;
END $$
"""


def upgrade() -> None:
    run(
        MAKE_ROLE.format(role="motet_app"),
        MAKE_ROLE.format(role="motet_system"),
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        "GRANT USAGE ON SCHEMA public TO motet_app, motet_system",
        "GRANT SELECT ON alembic_version TO motet_app, motet_system",
    )


def downgrade() -> None:
    # Roles belong to the whole server and may own things in other databases: they stay.
    run(
        "REVOKE SELECT ON alembic_version FROM motet_app, motet_system",
        "REVOKE USAGE ON SCHEMA public FROM motet_app, motet_system",
    )
