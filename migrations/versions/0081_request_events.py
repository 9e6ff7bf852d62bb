"""The end of each request, kept for days in partitions of a day, and figures of requests by the minute."""

from __future__ import annotations

from migrations.ddl import protect, run

revision = "0081"
down_revision = "0071"

EVENTS = """
CREATE TABLE request_events (
  request_id uuid NOT NULL,
  tenant_id uuid NOT NULL,
  key_id text NOT NULL,
  endpoint text NOT NULL,
  service_class text NOT NULL,
  outcome text NOT NULL
    CHECK (outcome IN ('served', 'cached', 'replayed', 'refused', 'failed', 'client_left')),
  at_step text NOT NULL,
  ended_at timestamptz NOT NULL,
  total_ms real NOT NULL,
  stands_for bigint NOT NULL DEFAULT 1,
  status smallint,
  error_code text,
  error_param text,
  refused_by text,
  refused_limit bigint,
  refused_needed bigint,
  refused_available bigint,
  retry_after_ms bigint,
  stream boolean,
  model text,
  base_id text,
  adapter_name text,
  adapter_version bigint,
  artefact text,
  owner_id uuid,
  attempts smallint NOT NULL DEFAULT 0,
  replica text,
  client_request_id text,
  client_retries smallint,
  original_request_id uuid,
  held_back text,
  prompt_tokens bigint,
  completion_tokens bigint,
  cached_tokens bigint,
  billed boolean NOT NULL DEFAULT false,
  auth_ms real, limits_ms real, body_ms real, resolve_ms real, kept_ms real, count_ms real, queue_ms real,
  first_byte_ms real, stream_ms real, end_ms real,
  engine_queue_ms bigint, engine_load_ms bigint, engine_ttft_ms bigint, engine_total_ms bigint,
  tier text,
  PRIMARY KEY (request_id)
) PARTITION BY RANGE (request_id)
"""

# A day's rows that were caught by the default partition move with their day. A partition that somebody
# reads is dropped an hour later: waiting for it would hold up whoever writes.
KEEP = """
CREATE FUNCTION motet_keep_request_events(ahead int, kept int) RETURNS int LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp SET lock_timeout = '2s'
AS $$
DECLARE
  today date := (now() AT TIME ZONE 'UTC')::date;
  day date;
  low uuid;
  high uuid;
  part text;
  done int := 0;
BEGIN
  IF ahead NOT BETWEEN 0 AND 31 OR kept NOT BETWEEN 1 AND 3660 THEN
    RAISE EXCEPTION 'ahead must be 0 to 31 days, kept 1 to 3660';
  END IF;
  PERFORM pg_advisory_xact_lock(hashtext('motet_keep_request_events'));
  FOR number IN -1..ahead LOOP
    day := today + number;
    part := 'request_events_' || to_char(day, 'YYYYMMDD');
    CONTINUE WHEN to_regclass('public.' || part) IS NOT NULL;
    low := public.motet_first_request_id(day::timestamp AT TIME ZONE 'UTC');
    high := public.motet_first_request_id((day + 1)::timestamp AT TIME ZONE 'UTC');
    EXECUTE format('CREATE TABLE public.%I (LIKE public.request_events'
                   ' INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', part);
    EXECUTE format('WITH moved AS (DELETE FROM public.request_events_default'
                   ' WHERE request_id >= %L AND request_id < %L RETURNING *)'
                   ' INSERT INTO public.%I SELECT * FROM moved', low, high, part);
    EXECUTE format('ALTER TABLE public.request_events ATTACH PARTITION public.%I'
                   ' FOR VALUES FROM (%L) TO (%L)', part, low, high);
    done := done + 1;
  END LOOP;
  low := public.motet_first_request_id((today - kept)::timestamp AT TIME ZONE 'UTC');
  DELETE FROM public.request_events_default WHERE request_id < low;
  FOR part IN
    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'public.request_events'::regclass AND c.relname ~ '^request_events_[0-9]{8}$'
      AND right(c.relname, 8) < to_char(today - kept, 'YYYYMMDD')
  LOOP
    BEGIN
      EXECUTE format('DROP TABLE public.%I', part);
      done := done + 1;
    EXCEPTION WHEN lock_not_available THEN NULL;
    END;
  END LOOP;
  RETURN done;
END $$
"""

MINUTES = """
CREATE TABLE request_minutes (
  tenant_id uuid NOT NULL,
  at timestamptz NOT NULL,
  adapter text NOT NULL,
  source uuid NOT NULL,
  sequence bigint NOT NULL,
  span_s integer NOT NULL CHECK (span_s IN (60, 900, 3600)),
  served bigint NOT NULL,
  cached bigint NOT NULL,
  replayed bigint NOT NULL,
  refused_by_limit bigint NOT NULL,
  refused_by_queue bigint NOT NULL,
  refused_otherwise bigint NOT NULL,
  failed bigint NOT NULL,
  client_left bigint NOT NULL,
  prompt_tokens bigint NOT NULL,
  completion_tokens bigint NOT NULL,
  cached_tokens bigint NOT NULL,
  ttft integer[] NOT NULL,
  inter_token integer[] NOT NULL,
  queue integer[] NOT NULL,
  total integer[] NOT NULL,
  PRIMARY KEY (tenant_id, at, adapter, source)
)
"""


def upgrade() -> None:
    run(
        EVENTS,
        "CREATE INDEX request_events_tenant ON request_events (tenant_id, request_id)",
        "CREATE INDEX request_events_unserved ON request_events (tenant_id, request_id)"
        " WHERE outcome <> 'served'",
        "CREATE TABLE request_events_default PARTITION OF request_events DEFAULT",
        KEEP,
        "REVOKE ALL ON FUNCTION motet_keep_request_events(int, int) FROM PUBLIC",
        "GRANT EXECUTE ON FUNCTION motet_keep_request_events(int, int) TO motet_system",
        "GRANT SELECT, INSERT, DELETE ON request_events TO motet_system",
        MINUTES,
        "CREATE INDEX request_minutes_at ON request_minutes (at)",
        "CREATE INDEX request_minutes_span ON request_minutes (span_s, at)",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON request_minutes TO motet_system",
        "SELECT motet_keep_request_events(2, 7)",
    )
    protect("request_events", app="SELECT")
    protect("request_minutes", app="SELECT")


def downgrade() -> None:
    run(
        "DROP TABLE request_minutes",
        "DROP FUNCTION motet_keep_request_events(int, int)",
        "DROP TABLE request_events",
    )
