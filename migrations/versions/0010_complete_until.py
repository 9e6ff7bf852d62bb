"""How far each journal is in the ledger, so that a sum can say until when it is complete."""

from __future__ import annotations

from migrations.ddl import protect, run

revision = "0010"
down_revision = "0006"

# Ten seconds are held back for a worker that has just started and has not said so yet. No row: nobody knows.
COMPLETE_UNTIL = """
CREATE FUNCTION motet_journals_complete_until() RETURNS timestamptz LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog
AS $$
  SELECT CASE WHEN count(*) > 0 THEN least(min(complete_until), now() - interval '10 seconds') END
  FROM public.usage_drains
$$
"""


def upgrade() -> None:
    run(
        """CREATE TABLE usage_drains (
             source text PRIMARY KEY,
             kind text NOT NULL CHECK (kind IN ('worker', 'engine')),
             folder text CHECK ((kind = 'worker') = (folder IS NOT NULL)),
             complete_until timestamptz NOT NULL,
             updated_at timestamptz NOT NULL DEFAULT now()
           )""",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON usage_drains TO motet_system",
        COMPLETE_UNTIL,
        "REVOKE ALL ON FUNCTION motet_journals_complete_until() FROM PUBLIC",
        "GRANT EXECUTE ON FUNCTION motet_journals_complete_until() TO motet_app, motet_system",
    )
    protect("usage_uncounted", app="SELECT")  # a tenant is told how much of its usage nobody could count yet


def downgrade() -> None:
    run(
        "REVOKE SELECT ON usage_uncounted FROM motet_app",
        "DROP POLICY tenant ON usage_uncounted",
        "DROP POLICY system ON usage_uncounted",
        "ALTER TABLE usage_uncounted NO FORCE ROW LEVEL SECURITY",
        "ALTER TABLE usage_uncounted DISABLE ROW LEVEL SECURITY",
        "DROP FUNCTION motet_journals_complete_until()",
        "DROP TABLE usage_drains",
    )
