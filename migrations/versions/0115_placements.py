"""Where adapters are wanted, whoever asks for them, and how much of it a tenant may have."""

from __future__ import annotations

from migrations.ddl import protect, run

revision = "0115"
down_revision = "0114"


def upgrade() -> None:
    run(
        """CREATE TABLE placements (
             adapter_id uuid PRIMARY KEY,
             tenant_id uuid NOT NULL,
             version bigint,
             replicas bigint NOT NULL CHECK (replicas BETWEEN 1 AND 256),
             pinned boolean NOT NULL,
             tier text NOT NULL CHECK (tier IN ('host', 'device')),
             created_at timestamptz NOT NULL DEFAULT now(),
             updated_at timestamptz NOT NULL DEFAULT now(),
             FOREIGN KEY (tenant_id, adapter_id) REFERENCES adapters (tenant_id, id) ON DELETE CASCADE
           )""",
        "CREATE INDEX placements_tenant ON placements (tenant_id, created_at)",
        """CREATE TABLE placement_quotas (
             tenant_id uuid PRIMARY KEY REFERENCES tenants (id),
             slots bigint NOT NULL CHECK (slots >= 0),
             bytes bigint NOT NULL CHECK (bytes >= 0),
             updated_at timestamptz NOT NULL DEFAULT now()
           )""",
        "CREATE INDEX adapter_versions_by_artefact ON adapter_versions (artefact)",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON placements, placement_quotas TO motet_system",
    )
    protect("placements")
    protect("placement_quotas", app="SELECT")


def downgrade() -> None:
    run(
        "DROP INDEX adapter_versions_by_artefact",
        "DROP TABLE placement_quotas",
        "DROP TABLE placements",
    )
