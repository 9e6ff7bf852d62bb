"""The usage ledger, partitioned by month, the table it is loaded through, and the reconciler's cursors."""

from __future__ import annotations

from migrations.ddl import protect, run

revision = "0004"
down_revision = "0003"

COLUMNS = """
  request_id uuid NOT NULL,
  attempt smallint NOT NULL,
  tenant_id uuid NOT NULL,
  key_id text NOT NULL,
  base_id text NOT NULL,
  adapter_name text,
  adapter_version bigint,
  artefact text,
  owner_id uuid,
  source text NOT NULL CHECK (source IN ('engine', 'cache')),
  purpose text NOT NULL CHECK (purpose IN ('tenant', 'probe', 'proof', 'warmup')),
  outcome text NOT NULL,
  prompt_tokens bigint NOT NULL,
  completion_tokens bigint NOT NULL,
  cached_tokens bigint NOT NULL,
  billed_prompt_tokens bigint NOT NULL,
  billed_completion_tokens bigint NOT NULL,
  billed_cached_tokens bigint NOT NULL,
  queue_ms bigint,
  load_ms bigint,
  ttft_ms bigint,
  total_ms bigint,
  tier text,
  service_class text NOT NULL DEFAULT 'standard',
  replica text,
  price_book_version bigint,
  client_request_id text,
  created_at timestamptz NOT NULL,
  ended_at timestamptz NOT NULL
"""

# A UUIDv7 begins with its Unix time in milliseconds (RFC 9562 §5.7), so a moment is a bound.
FIRST_ID_OF = """
CREATE FUNCTION motet_first_request_id(moment timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog
AS $$ SELECT rpad(lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0'), 32, '0')::uuid $$
"""

# Rows that already lie in the default partition move with the month they belong to: a partition may not
# be attached over them. Partitions get no grants: the ledger is reached through its parent and its policies.
ENSURE_PARTITIONS = """
CREATE FUNCTION motet_ensure_partitions(months int) RETURNS int LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
  this_month timestamp := date_trunc('month', now() AT TIME ZONE 'UTC');
  first timestamp;
  low uuid;
  high uuid;
  part text;
  made int := 0;
BEGIN
  IF months NOT BETWEEN 0 AND 120 THEN
    RAISE EXCEPTION 'months must be 0 to 120';
  END IF;
  PERFORM pg_advisory_xact_lock(hashtext('motet_ensure_partitions'));
  FOR ahead IN 0..months LOOP
    first := this_month + make_interval(months => ahead);
    part := 'usage_ledger_' || to_char(first, 'YYYYMM');
    CONTINUE WHEN to_regclass('public.' || part) IS NOT NULL;
    low := public.motet_first_request_id(first AT TIME ZONE 'UTC');
    high := public.motet_first_request_id((first + interval '1 month') AT TIME ZONE 'UTC');
    EXECUTE format('CREATE TABLE public.%I (LIKE public.usage_ledger'
                   ' INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', part);
    EXECUTE format('WITH moved AS (DELETE FROM public.usage_ledger_default'
                   ' WHERE request_id >= %L AND request_id < %L RETURNING *)'
                   ' INSERT INTO public.%I SELECT * FROM moved', low, high, part);
    EXECUTE format('ALTER TABLE public.usage_ledger ATTACH PARTITION public.%I FOR VALUES FROM (%L) TO (%L)',
                   part, low, high);
    made := made + 1;
  END LOOP;
  RETURN made;
END $$
"""


def upgrade() -> None:
    run(
        f"CREATE TABLE usage_ledger ({COLUMNS}, PRIMARY KEY (request_id, attempt))"
        " PARTITION BY RANGE (request_id)",
        "CREATE INDEX usage_ledger_tenant ON usage_ledger (tenant_id, request_id)",
        "CREATE TABLE usage_ledger_default PARTITION OF usage_ledger DEFAULT",
        f"CREATE UNLOGGED TABLE usage_staging ({COLUMNS}, batch uuid NOT NULL,"
        " PRIMARY KEY (request_id, attempt, batch))",
        """CREATE TABLE journal_cursors (
             journal_id text PRIMARY KEY,
             n bigint NOT NULL,
             updated_at timestamptz NOT NULL DEFAULT now()
           )""",
        FIRST_ID_OF,
        ENSURE_PARTITIONS,
        "REVOKE ALL ON FUNCTION motet_ensure_partitions(int) FROM PUBLIC",
        "GRANT EXECUTE ON FUNCTION motet_ensure_partitions(int) TO motet_system",
        "GRANT SELECT, INSERT ON usage_ledger TO motet_system",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON usage_staging, journal_cursors TO motet_system",
        "SELECT motet_ensure_partitions(2)",
    )
    protect("usage_ledger", app="SELECT")


def downgrade() -> None:
    run(
        "DROP FUNCTION motet_ensure_partitions(int)",
        "DROP FUNCTION motet_first_request_id(timestamptz)",
        "DROP TABLE journal_cursors",
        "DROP TABLE usage_staging",
        "DROP TABLE usage_ledger",
    )
