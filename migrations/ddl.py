"""What migrations repeat: statements in order, and the row-level security of a tenant's table."""

from __future__ import annotations

from alembic import op

CURRENT_TENANT = "nullif(current_setting('motet.tenant', true), '')::uuid"


def run(*statements: str) -> None:
    for statement in statements:
        op.execute(statement)


def protect(table: str, column: str = "tenant_id", *, app: str = "SELECT, INSERT, UPDATE, DELETE") -> None:
    """Rows of `table` belong to the tenant in `column`: motet_app sees only those of `motet.tenant`,
    motet_system all.

    FORCE makes the owner subject to it too, so a connection with the wrong role fails closed.
    """
    run(
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",
        f"CREATE POLICY tenant ON {table} TO motet_app"
        f" USING ({column} = {CURRENT_TENANT}) WITH CHECK ({column} = {CURRENT_TENANT})",
        f"CREATE POLICY system ON {table} TO motet_system USING (true) WITH CHECK (true)",
        f"GRANT {app} ON {table} TO motet_app",
    )
