"""Where a tenant is in its life, its off-boardings, and what their purges did.

`status` stays as it was: whatever is leaving is suspended too, so that a release that knows nothing of
`lifecycle` keeps it out.
"""

from __future__ import annotations

from migrations.ddl import run

revision = "0092"
down_revision = "0091"


def upgrade() -> None:
    run(
        """ALTER TABLE tenants
             ADD COLUMN lifecycle text NOT NULL DEFAULT 'active'
               CONSTRAINT tenants_lifecycle CHECK (lifecycle IN ('active', 'offboarding', 'purged')),
             ADD COLUMN suspended_for text""",
        """CREATE TABLE offboardings (
             id uuid PRIMARY KEY,
             tenant_id uuid NOT NULL REFERENCES tenants (id),
             state text NOT NULL
               CONSTRAINT offboardings_state CHECK (state IN ('waiting', 'purging', 'purged', 'undone')),
             requested_by text NOT NULL,
             reason text NOT NULL,
             status_before text NOT NULL,
             requested_at timestamptz NOT NULL DEFAULT now(),
             purge_after timestamptz NOT NULL,
             ended_by text,
             ended_at timestamptz,
             proof jsonb,
             looked_again_at timestamptz,
             leftovers jsonb,
             CONSTRAINT offboardings_proof CHECK ((state = 'purged') = (proof IS NOT NULL))
           )""",
        "CREATE UNIQUE INDEX offboardings_open ON offboardings (tenant_id)"
        " WHERE state IN ('waiting', 'purging')",
        "CREATE INDEX offboardings_tenant ON offboardings (tenant_id, requested_at)",
        """CREATE TABLE purge_steps (
             offboarding_id uuid NOT NULL REFERENCES offboardings (id),
             kind text NOT NULL,
             found bigint NOT NULL,
             digest text NOT NULL,
             listed_at timestamptz NOT NULL DEFAULT now(),
             done_at timestamptz,
             PRIMARY KEY (offboarding_id, kind)
           )""",
        "GRANT SELECT, INSERT, UPDATE ON offboardings, purge_steps TO motet_system",
        "GRANT DELETE ON api_keys, billing_exports TO motet_system",
    )


def downgrade() -> None:
    run(
        "REVOKE DELETE ON api_keys, billing_exports FROM motet_system",
        "DROP TABLE purge_steps",
        "DROP TABLE offboardings",
        "ALTER TABLE tenants DROP COLUMN lifecycle, DROP COLUMN suspended_for",
    )
