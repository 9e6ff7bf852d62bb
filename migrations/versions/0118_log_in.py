"""Who logs in where: identities at OpenID providers, and passwords that have to be changed first.

A gateway of before goes on: it knows neither, and lets a password that has to be changed in.
"""

from __future__ import annotations

from migrations.ddl import run

revision = "0118"
down_revision = "0117"


def upgrade() -> None:
    run(
        "ALTER TABLE admins ADD COLUMN must_change_password boolean NOT NULL DEFAULT false",
        "ALTER TABLE admins ADD COLUMN bootstrap_hash text NOT NULL DEFAULT ''",
        """CREATE TABLE admin_identities (
             issuer text NOT NULL,
             subject text NOT NULL,
             admin_id uuid NOT NULL REFERENCES admins (id) ON DELETE CASCADE,
             created_at timestamptz NOT NULL DEFAULT now(),
             CONSTRAINT admin_identities_pkey PRIMARY KEY (issuer, subject)
           )""",
        "CREATE INDEX admin_identities_admin ON admin_identities (admin_id)",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON admin_identities TO motet_system",
    )


def downgrade() -> None:
    run(
        "DROP TABLE admin_identities",
        "ALTER TABLE admins DROP COLUMN bootstrap_hash",
        "ALTER TABLE admins DROP COLUMN must_change_password",
    )
