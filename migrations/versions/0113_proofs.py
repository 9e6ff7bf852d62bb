"""The life of a version before it answers: facts of its files, proofs on replicas, proofs that are to do."""

from __future__ import annotations

from migrations.ddl import protect, run

revision = "0113"
down_revision = "0112"

STATE = "ALTER TABLE adapter_versions DROP CONSTRAINT adapter_versions_state"
ADDED = "ADD CONSTRAINT adapter_versions_state CHECK (state IN ({0}))"
BEFORE = "'pending', 'ready', 'refused', 'retired'"
NOW = f"{BEFORE}, 'uploaded', 'proving', 'rejected'"
TABLES = ("proof_tasks", "adapter_proofs", "adapter_facts")


def upgrade() -> None:
    run(
        f"{STATE}, {ADDED.format(NOW)}",
        """ALTER TABLE adapter_versions
             ADD COLUMN moves_alias text,
             ADD COLUMN reason text,
             ADD COLUMN ready_at timestamptz""",
        "UPDATE adapter_versions SET ready_at = created_at WHERE state IN ('ready', 'retired')",
        "UPDATE adapter_versions SET state = 'uploaded' WHERE state = 'pending'",
        "UPDATE adapter_versions SET state = 'rejected' WHERE state = 'refused'",
        """CREATE TABLE adapter_facts (
             version_id uuid PRIMARY KEY REFERENCES adapter_versions (id),
             tenant_id uuid NOT NULL REFERENCES tenants (id),
             facts jsonb NOT NULL,
             acceptance jsonb,
             created_at timestamptz NOT NULL DEFAULT now()
           )""",
        """CREATE TABLE adapter_proofs (
             version_id uuid NOT NULL REFERENCES adapter_versions (id),
             base_digest text NOT NULL,
             tenant_id uuid NOT NULL REFERENCES tenants (id),
             passed boolean NOT NULL,
             longest boolean NOT NULL DEFAULT false,
             reason text,
             report jsonb NOT NULL,
             proved_at timestamptz NOT NULL DEFAULT now(),
             PRIMARY KEY (version_id, base_digest)
           )""",
        """CREATE TABLE proof_tasks (
             version_id uuid NOT NULL REFERENCES adapter_versions (id),
             base_digest text NOT NULL DEFAULT '',
             tenant_id uuid NOT NULL REFERENCES tenants (id),
             longest boolean NOT NULL DEFAULT false,
             priority bigint NOT NULL DEFAULT 0,
             holder uuid,
             held_until timestamptz,
             not_before timestamptz NOT NULL DEFAULT now(),
             tries bigint NOT NULL DEFAULT 0,
             reason text,
             created_at timestamptz NOT NULL DEFAULT now(),
             PRIMARY KEY (version_id, base_digest)
           )""",
        """CREATE TABLE base_upgrades (
             base_id text NOT NULL REFERENCES bases (base_id),
             base_digest text NOT NULL,
             state text NOT NULL
               CONSTRAINT base_upgrades_state CHECK (state IN ('proving', 'finished', 'abandoned')),
             started_at timestamptz NOT NULL DEFAULT now(),
             ended_at timestamptz,
             PRIMARY KEY (base_id, base_digest)
           )""",
        "GRANT SELECT, INSERT, UPDATE ON base_upgrades TO motet_system",
        "CREATE INDEX proof_tasks_due ON proof_tasks (not_before)",
        # what waited when this was a state that nothing ever left
        """INSERT INTO proof_tasks (version_id, tenant_id)
             SELECT id, tenant_id FROM adapter_versions WHERE state = 'uploaded'""",
    )
    for table in reversed(TABLES):
        protect(table)
        run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO motet_system")


def downgrade() -> None:
    run(
        *(f"DROP TABLE {table}" for table in (*TABLES, "base_upgrades")),
        "UPDATE adapter_versions SET state = 'pending' WHERE state IN ('uploaded', 'proving')",
        "UPDATE adapter_versions SET state = 'refused' WHERE state = 'rejected'",
        "ALTER TABLE adapter_versions DROP COLUMN ready_at, DROP COLUMN reason, DROP COLUMN moves_alias",
        f"{STATE}, {ADDED.format(BEFORE)}",
    )
