"""How a version ends: retired for a while, then purged replica by replica; and what was found of the store.

A version that an older release retired has no `purges_at`: its object went at once. It can't be restored, and
counts for nothing.
"""

from __future__ import annotations

from migrations.ddl import protect, run

revision = "0117"
down_revision = "0116"


def upgrade() -> None:
    run(
        """ALTER TABLE adapter_versions
             ADD COLUMN purges_at timestamptz,
             ADD COLUMN purged_at timestamptz,
             ADD COLUMN state_before text,
             ADD COLUMN retired_aliases text[],
             ADD COLUMN lost_at timestamptz""",
        "CREATE INDEX adapter_versions_purging ON adapter_versions (purges_at)"
        " WHERE purges_at IS NOT NULL AND purged_at IS NULL",
        """CREATE TABLE artefact_purges (
             tenant_id uuid NOT NULL REFERENCES tenants (id),
             artefact text NOT NULL,
             asked_by text NOT NULL,
             asked_at timestamptz NOT NULL DEFAULT now(),
             tried_at timestamptz,
             object_gone_at timestamptz,
             ended_at timestamptz,
             PRIMARY KEY (tenant_id, artefact)
           )""",
        "CREATE INDEX artefact_purges_open ON artefact_purges (tried_at) WHERE ended_at IS NULL",
        """CREATE TABLE artefact_purge_replicas (
             tenant_id uuid NOT NULL,
             artefact text NOT NULL,
             url text NOT NULL,
             replica_id uuid NOT NULL,
             state text NOT NULL CONSTRAINT artefact_purge_replicas_state
               CHECK (state IN ('held', 'away', 'purged', 'unverified', 'gone')),
             reason text,
             changed_at timestamptz NOT NULL DEFAULT now(),
             PRIMARY KEY (tenant_id, artefact, url),
             FOREIGN KEY (tenant_id, artefact) REFERENCES artefact_purges (tenant_id, artefact)
               ON DELETE CASCADE
           )""",
        "CREATE INDEX artefact_purge_replicas_owing ON artefact_purge_replicas (url)"
        " WHERE state IN ('away', 'gone')",
        """CREATE TABLE store_checks (
             id uuid PRIMARY KEY,
             repair boolean NOT NULL,
             depth text NOT NULL
               CONSTRAINT store_checks_depth CHECK (depth IN ('listed', 'sampled', 'full')),
             state text NOT NULL
               CONSTRAINT store_checks_state CHECK (state IN ('waiting', 'running', 'done', 'failed')),
             asked_by text NOT NULL,
             asked_at timestamptz NOT NULL DEFAULT now(),
             started_at timestamptz,
             ended_at timestamptz,
             found jsonb,
             error text
           )""",
        "GRANT SELECT, INSERT, UPDATE, DELETE"
        " ON artefact_purges, artefact_purge_replicas, store_checks TO motet_system",
    )
    protect("artefact_purges")
    protect("artefact_purge_replicas", app="SELECT, DELETE")


def downgrade() -> None:
    run(
        "DROP TABLE store_checks",
        "DROP TABLE artefact_purge_replicas",
        "DROP TABLE artefact_purges",
        """ALTER TABLE adapter_versions
             DROP COLUMN purges_at, DROP COLUMN purged_at, DROP COLUMN state_before,
             DROP COLUMN retired_aliases, DROP COLUMN lost_at""",
    )
