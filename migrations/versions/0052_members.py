"""Members of tenants: accounts that are no operators, and tokens that are good for one membership.

A gateway of before takes every row of `admins` for an operator. So that it can run beside a new one, it must
not see accounts and tokens of members: the database hides them from connections that don't say
`motet.accounts = 'all'`, which only those that know of roles do.
"""

from __future__ import annotations

from migrations.ddl import protect, run

revision = "0052"
down_revision = "0051"

KNOWS = "current_setting('motet.accounts', true) = 'all'"


def hide(table: str, shown: str) -> None:
    run(
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        f"CREATE POLICY accounts ON {table} TO motet_system"
        f" USING ({shown} OR {KNOWS}) WITH CHECK ({shown} OR {KNOWS})",
    )


def upgrade() -> None:
    run(
        "ALTER TABLE admins ADD COLUMN is_operator boolean NOT NULL DEFAULT true",
        """CREATE TABLE members (
             id uuid PRIMARY KEY,
             tenant_id uuid NOT NULL REFERENCES tenants (id),
             admin_id uuid NOT NULL REFERENCES admins (id),
             role text NOT NULL
               CONSTRAINT members_role CHECK (role IN ('tenant_admin', 'developer', 'billing', 'viewer')),
             created_at timestamptz NOT NULL DEFAULT now(),
             updated_at timestamptz NOT NULL DEFAULT now(),
             CONSTRAINT members_once UNIQUE (tenant_id, admin_id)
           )""",
        "CREATE INDEX members_admin ON members (admin_id)",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON members TO motet_system",
        "ALTER TABLE admin_tokens ADD COLUMN member_id uuid REFERENCES members (id) ON DELETE CASCADE",
        "CREATE INDEX admin_tokens_member ON admin_tokens (member_id)",
    )
    protect("members", app="SELECT")
    hide("admins", "is_operator")
    hide("admin_tokens", "member_id IS NULL")


def downgrade() -> None:
    run(
        "DELETE FROM admin_tokens WHERE member_id IS NOT NULL",
        "DROP POLICY accounts ON admin_tokens",
        "ALTER TABLE admin_tokens DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE admin_tokens DROP COLUMN member_id",
        "DROP TABLE members",
        "DELETE FROM admin_tokens WHERE admin_id IN (SELECT id FROM admins WHERE NOT is_operator)",
        "DELETE FROM admins WHERE NOT is_operator",
        "DROP POLICY accounts ON admins",
        "ALTER TABLE admins DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE admins DROP COLUMN is_operator",
    )
