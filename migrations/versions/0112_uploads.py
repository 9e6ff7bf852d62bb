"""Resumable uploads, and the room that adapters on their way in have been promised."""

from __future__ import annotations

from migrations.ddl import protect, run

revision = "0112"
down_revision = "0111"


def upgrade() -> None:
    run(
        """CREATE TABLE uploads (
             id uuid PRIMARY KEY,
             tenant_id uuid NOT NULL REFERENCES tenants (id),
             file text NOT NULL,
             num_bytes bigint NOT NULL,
             received bigint NOT NULL,
             told text NOT NULL,
             sha256 text,
             writer uuid,
             adapter text,
             version bigint,
             created_at timestamptz NOT NULL DEFAULT now(),
             touched_at timestamptz NOT NULL DEFAULT now(),
             expires_at timestamptz NOT NULL,
             CONSTRAINT uploads_received CHECK (received BETWEEN 0 AND num_bytes),
             CONSTRAINT uploads_taken CHECK ((adapter IS NULL) = (version IS NULL))
           )""",
        "CREATE INDEX uploads_tenant ON uploads (tenant_id, id)",
        "CREATE INDEX uploads_expiry ON uploads (expires_at)",
        """CREATE TABLE storage_holds (
             id uuid PRIMARY KEY,
             tenant_id uuid NOT NULL REFERENCES tenants (id),
             place text NOT NULL,
             num_bytes bigint NOT NULL,
             makes_version boolean NOT NULL DEFAULT false,
             created_at timestamptz NOT NULL DEFAULT now(),
             expires_at timestamptz NOT NULL,
             CONSTRAINT storage_holds_bytes CHECK (num_bytes >= 0)
           )""",
        "CREATE INDEX storage_holds_tenant ON storage_holds (tenant_id)",
        "CREATE INDEX storage_holds_place ON storage_holds (place)",
        "CREATE INDEX storage_holds_expiry ON storage_holds (expires_at)",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON uploads, storage_holds TO motet_system",
    )
    protect("uploads")
    protect("storage_holds")


def downgrade() -> None:
    run("DROP TABLE storage_holds", "DROP TABLE uploads")
