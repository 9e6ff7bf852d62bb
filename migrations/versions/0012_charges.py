"""Rollups of 15 minutes, the queue that says which are stale, and the journal of charges."""

from __future__ import annotations

from migrations.ddl import protect, run

revision = "0012"
down_revision = "0011"

BUCKET = """
CREATE FUNCTION motet_bucket(moment timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog
AS $$ SELECT to_timestamp(floor(extract(epoch FROM moment) / 900) * 900) $$
"""

# On the table itself, so that no way into the ledger can forget it.
NOTE_ARRIVALS = """
CREATE FUNCTION motet_note_arrivals() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog
AS $$ BEGIN
  INSERT INTO public.usage_arrivals (tenant_id, bucket, earliest)
    SELECT tenant_id, public.motet_bucket(ended_at), min(ended_at) FROM arrived
    WHERE purpose = 'tenant' GROUP BY 1, 2;
  RETURN NULL;
END $$
"""

GRAIN = """
  tenant_id uuid NOT NULL,
  bucket timestamptz NOT NULL,
  key_id text NOT NULL,
  base_id text NOT NULL,
  owner_id uuid,
  adapter_name text,
  adapter_version bigint,
  artefact text,
  service_class text NOT NULL,
  source text NOT NULL CHECK (source IN ('engine', 'cache'))
"""

TABLES = (
    """CREATE TABLE usage_arrivals (
         id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
         tenant_id uuid NOT NULL,
         bucket timestamptz NOT NULL,
         earliest timestamptz NOT NULL
       )""",
    "CREATE INDEX usage_arrivals_bucket ON usage_arrivals (tenant_id, bucket)",
    f"""CREATE TABLE usage_rollups (
         id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
         {GRAIN},
         requests bigint NOT NULL,
         unbilled_attempts bigint NOT NULL,
         prompt_tokens bigint NOT NULL,
         cached_tokens bigint NOT NULL,
         completion_tokens bigint NOT NULL
       )""",
    "CREATE INDEX usage_rollups_bucket ON usage_rollups (tenant_id, bucket)",
    f"""CREATE TABLE usage_charges (
         seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
         {GRAIN},
         version bigint NOT NULL REFERENCES price_book_versions (version),
         price_id uuid NOT NULL REFERENCES prices (id),
         currency text NOT NULL,
         requests bigint NOT NULL,
         input_tokens bigint NOT NULL,
         cached_tokens bigint NOT NULL,
         output_tokens bigint NOT NULL,
         input_price bigint NOT NULL,
         cached_price bigint NOT NULL,
         output_price bigint NOT NULL,
         amount numeric(38, 0) NOT NULL CONSTRAINT usage_charges_amount CHECK (
           amount = input_tokens::numeric * input_price + cached_tokens::numeric * cached_price
                  + output_tokens::numeric * output_price),
         billed_month date NOT NULL CHECK (extract(day FROM billed_month) = 1),
         rerating uuid,
         rated_at timestamptz NOT NULL DEFAULT now()
       )""",
    "CREATE INDEX usage_charges_bucket ON usage_charges (tenant_id, bucket)",
    "CREATE INDEX usage_charges_month ON usage_charges (billed_month, tenant_id)",
    "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON usage_charges"
    " FOR EACH STATEMENT EXECUTE FUNCTION motet_refuse_change()",
    """CREATE TABLE usage_unpriced (
         tenant_id uuid NOT NULL,
         bucket timestamptz NOT NULL,
         PRIMARY KEY (tenant_id, bucket)
       )""",
    "GRANT SELECT, INSERT, DELETE ON usage_arrivals, usage_rollups, usage_unpriced TO motet_system",
    "GRANT SELECT, INSERT ON usage_charges TO motet_system",
)

# The owner sees no row of a table with forced row security: it is lifted for this one statement.
TAKE_UP_WHAT_IS_THERE = (
    "ALTER TABLE usage_ledger NO FORCE ROW LEVEL SECURITY",
    "INSERT INTO usage_arrivals (tenant_id, bucket, earliest)"
    " SELECT tenant_id, motet_bucket(ended_at), min(ended_at) FROM usage_ledger"
    " WHERE purpose = 'tenant' GROUP BY 1, 2",
    "ALTER TABLE usage_ledger FORCE ROW LEVEL SECURITY",
)


def upgrade() -> None:
    run(
        BUCKET,
        *TABLES,
        "CREATE INDEX usage_ledger_ended ON usage_ledger (tenant_id, ended_at)",
        NOTE_ARRIVALS,
        "CREATE TRIGGER note_arrivals AFTER INSERT ON usage_ledger REFERENCING NEW TABLE AS arrived"
        " FOR EACH STATEMENT EXECUTE FUNCTION motet_note_arrivals()",
        *TAKE_UP_WHAT_IS_THERE,
    )
    for table in ("usage_arrivals", "usage_rollups", "usage_charges", "usage_unpriced"):
        protect(table, app="SELECT")


def downgrade() -> None:
    run(
        "DROP TRIGGER note_arrivals ON usage_ledger",
        "DROP FUNCTION motet_note_arrivals()",
        "DROP INDEX usage_ledger_ended",
        "DROP TABLE usage_unpriced",
        "DROP TABLE usage_charges",
        "DROP TABLE usage_rollups",
        "DROP TABLE usage_arrivals",
        "DROP FUNCTION motet_bucket(timestamptz)",
    )
