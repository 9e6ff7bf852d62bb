"""Closed months, their statements, and exports."""

from __future__ import annotations

from migrations.ddl import protect, run

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    run(
        """CREATE TABLE billing_periods (
             month date PRIMARY KEY CHECK (extract(day FROM month) = 1),
             complete_until timestamptz NOT NULL,
             through_seq bigint NOT NULL,
             closed_at timestamptz NOT NULL DEFAULT now()
           )""",
        """CREATE TABLE billing_statements (
             id text PRIMARY KEY,
             tenant_id uuid NOT NULL REFERENCES tenants (id),
             month date NOT NULL REFERENCES billing_periods (month),
             currency text NOT NULL,
             exact numeric(38, 0) NOT NULL,
             rounded numeric(38, 0) NOT NULL,
             issued_at timestamptz NOT NULL DEFAULT now(),
             CONSTRAINT billing_statements_month UNIQUE (tenant_id, month)
           )""",
        """CREATE TABLE billing_exports (
             id text PRIMARY KEY CHECK (id ~ '^[0-9a-f]{64}$'),
             tenant_id uuid REFERENCES tenants (id),
             month date NOT NULL,
             through_seq bigint NOT NULL,
             closed boolean NOT NULL,
             state text NOT NULL CHECK (state IN ('waiting', 'done', 'failed', 'superseded')),
             reason text,
             manifest bytea CHECK (state <> 'done' OR manifest IS NOT NULL),
             requested_by text NOT NULL,
             created_at timestamptz NOT NULL DEFAULT now(),
             finished_at timestamptz
           )""",
        "CREATE INDEX billing_exports_tenant ON billing_exports (tenant_id, created_at)",
        "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_periods"
        " FOR EACH STATEMENT EXECUTE FUNCTION motet_refuse_change()",
        "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON billing_statements"
        " FOR EACH STATEMENT EXECUTE FUNCTION motet_refuse_change()",
        "GRANT SELECT, INSERT ON billing_periods, billing_statements TO motet_system",
        "GRANT SELECT, INSERT, UPDATE ON billing_exports TO motet_system",
        "GRANT SELECT ON billing_periods TO motet_app",  # holds nothing of a tenant
    )
    protect("billing_statements", app="SELECT")
    protect("billing_exports", app="SELECT")


def downgrade() -> None:
    run("DROP TABLE billing_exports", "DROP TABLE billing_statements", "DROP TABLE billing_periods")
