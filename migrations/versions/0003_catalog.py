"""Bases, adapters with their versions and aliases, and the replicas that serve them."""

from __future__ import annotations

from migrations.ddl import protect, run

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    run(
        """CREATE TABLE bases (
             base_id text PRIMARY KEY,
             name text NOT NULL UNIQUE,
             spec jsonb NOT NULL,
             created_at timestamptz NOT NULL DEFAULT now()
           )""",
        """CREATE TABLE adapters (
             id uuid PRIMARY KEY,
             tenant_id uuid NOT NULL REFERENCES tenants (id),
             base_id text NOT NULL REFERENCES bases (base_id),
             name text NOT NULL,
             last_number bigint NOT NULL DEFAULT 0,
             created_at timestamptz NOT NULL DEFAULT now(),
             CONSTRAINT adapters_name UNIQUE (tenant_id, base_id, name),
             CONSTRAINT adapters_owner UNIQUE (tenant_id, id)
           )""",
        """CREATE TABLE adapter_versions (
             id uuid PRIMARY KEY,
             tenant_id uuid NOT NULL,
             adapter_id uuid NOT NULL,
             number bigint NOT NULL CHECK (number > 0),
             artefact text NOT NULL,
             content_digest text NOT NULL,
             state text NOT NULL
               CONSTRAINT adapter_versions_state CHECK (state IN ('pending', 'ready', 'refused', 'retired')),
             manifest jsonb NOT NULL,
             num_bytes bigint NOT NULL,
             created_at timestamptz NOT NULL DEFAULT now(),
             retired_at timestamptz,
             CONSTRAINT adapter_versions_number UNIQUE (adapter_id, number),
             FOREIGN KEY (tenant_id, adapter_id) REFERENCES adapters (tenant_id, id)
           )""",
        "CREATE INDEX adapter_versions_artefact ON adapter_versions (tenant_id, artefact)",
        """CREATE TABLE aliases (
             adapter_id uuid NOT NULL,
             name text NOT NULL,
             tenant_id uuid NOT NULL,
             version bigint NOT NULL,
             created_at timestamptz NOT NULL DEFAULT now(),
             updated_at timestamptz NOT NULL DEFAULT now(),
             PRIMARY KEY (adapter_id, name),
             FOREIGN KEY (tenant_id, adapter_id) REFERENCES adapters (tenant_id, id),
             FOREIGN KEY (adapter_id, version) REFERENCES adapter_versions (adapter_id, number)
           )""",
        """CREATE TABLE replicas (
             url text PRIMARY KEY,
             base_id text NOT NULL REFERENCES bases (base_id),
             state text NOT NULL CONSTRAINT replicas_state CHECK (state IN ('up', 'draining', 'down')),
             seen_at timestamptz NOT NULL DEFAULT now(),
             created_at timestamptz NOT NULL DEFAULT now()
           )""",
        "GRANT SELECT, INSERT, UPDATE, DELETE"
        " ON bases, adapters, adapter_versions, aliases, replicas TO motet_system",
        "GRANT SELECT ON bases TO motet_app",
    )
    for table in ("adapters", "adapter_versions", "aliases"):
        protect(table)


def downgrade() -> None:
    for table in ("replicas", "aliases", "adapter_versions", "adapters", "bases"):
        run(f"DROP TABLE {table}")
