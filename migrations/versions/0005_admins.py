"""Operators, their tokens, and the log of what they did."""

from __future__ import annotations

from migrations.ddl import protect, run

revision = "0005"
down_revision = "0004"

REFUSE_CHANGE = """
CREATE FUNCTION motet_refuse_change() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$
"""


def upgrade() -> None:
    run(
        """CREATE TABLE admins (
             id uuid PRIMARY KEY,
             email text NOT NULL UNIQUE CHECK (email = lower(email)),
             password_hash text NOT NULL,
             created_at timestamptz NOT NULL DEFAULT now(),
             disabled_at timestamptz
           )""",
        """CREATE TABLE admin_tokens (
             id uuid PRIMARY KEY,
             admin_id uuid NOT NULL REFERENCES admins (id),
             token_id text NOT NULL UNIQUE,
             secret_hmac bytea NOT NULL CHECK (octet_length(secret_hmac) = 32),
             pepper_version text NOT NULL,
             name text NOT NULL,
             created_at timestamptz NOT NULL DEFAULT now(),
             expires_at timestamptz,
             revoked_at timestamptz
           )""",
        """CREATE TABLE audit_events (
             id uuid PRIMARY KEY,
             tenant_id uuid,
             actor text NOT NULL,
             action text NOT NULL,
             target text NOT NULL,
             details jsonb NOT NULL,
             request_id uuid,
             created_at timestamptz NOT NULL DEFAULT now()
           )""",
        "CREATE INDEX audit_events_tenant ON audit_events (tenant_id, id)",
        REFUSE_CHANGE,
        "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_events"
        " FOR EACH STATEMENT EXECUTE FUNCTION motet_refuse_change()",
        "GRANT SELECT, INSERT, UPDATE ON admins, admin_tokens TO motet_system",
        "GRANT SELECT, INSERT ON audit_events TO motet_system",
    )
    protect("audit_events", app="SELECT, INSERT")


def downgrade() -> None:
    run(
        "DROP TABLE audit_events",
        "DROP FUNCTION motet_refuse_change()",
        "DROP TABLE admin_tokens",
        "DROP TABLE admins",
    )
