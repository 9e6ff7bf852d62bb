"""How long things of a tenant are kept, where that differs from the platform's default; and the oldest
release that the schema still serves."""

from __future__ import annotations

from migrations.ddl import run

revision = "0093"
down_revision = "0092"


def upgrade() -> None:
    run(
        """CREATE TABLE retention_rules (
             tenant_id uuid NOT NULL REFERENCES tenants (id),
             kind text NOT NULL,
             days bigint NOT NULL CHECK (days BETWEEN 1 AND 3650),
             updated_at timestamptz NOT NULL DEFAULT now(),
             PRIMARY KEY (tenant_id, kind)
           )""",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON retention_rules TO motet_system",
        """CREATE TABLE schema_support (
             one_row boolean PRIMARY KEY DEFAULT true CHECK (one_row),
             oldest_release text NOT NULL
           )""",
        "INSERT INTO schema_support (oldest_release) VALUES ('0093')",
        "GRANT SELECT ON schema_support TO motet_system",
    )


def downgrade() -> None:
    run("DROP TABLE schema_support", "DROP TABLE retention_rules")
