"""The audit log as hash chains: one of the platform, one of each tenant.

A link is made when the transaction of its event commits, not when the event is inserted: the lock of the
chain's end is then the last that the transaction takes and the shortest that it holds, so that it meets no
other lock in another order, and a long change holds up nobody's log. Releases that know nothing of it write
chained events too.
"""

from __future__ import annotations

from migrations.ddl import run

revision = "0091"
down_revision = "0081"

# What a link's hash covers, in jsonb's own text, which `gateway/audit/chain.py` writes without the database.
CONTENT = """
CREATE FUNCTION motet_audit_content(event audit_events, chain uuid, seq bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog SET timezone = 'UTC'
AS $$
  SELECT jsonb_build_array(
    chain, seq, event.id, event.tenant_id, event.actor, event.action, event.target, event.details,
    event.request_id, to_char(event.created_at, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))::text
$$
"""

LINK = """
CREATE FUNCTION motet_link_audit_event(event audit_events) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  its_chain uuid := coalesce(event.tenant_id, '00000000-0000-0000-0000-000000000000');
  last record;
BEGIN
  SELECT seq, hash INTO last FROM public.audit_links WHERE chain = its_chain ORDER BY seq DESC LIMIT 1;
  INSERT INTO public.audit_links (chain, seq, event_id, previous, hash)
    SELECT its_chain, next.seq, event.id, next.previous,
           sha256(next.previous || convert_to(public.motet_audit_content(event, its_chain, next.seq), 'UTF8'))
    FROM (SELECT coalesce(last.seq, 0) + 1 AS seq,
                 coalesce(last.hash, decode(repeat('00', 32), 'hex')) AS previous) next;
END $$
"""

ON_COMMIT = """
CREATE FUNCTION motet_chain_audit_event() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$ BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('motet audit ' || coalesce(NEW.tenant_id::text, ''), 0));
  PERFORM public.motet_link_audit_event(NEW);
  RETURN NULL;
END $$
"""

# The owner sees no row of a table with forced row security: it is lifted for these statements.
TAKE_UP_WHAT_IS_THERE = (
    "LOCK TABLE audit_events IN SHARE ROW EXCLUSIVE MODE",
    "ALTER TABLE audit_events NO FORCE ROW LEVEL SECURITY",
    """DO $$
       DECLARE event audit_events;
       BEGIN
         FOR event IN SELECT * FROM audit_events ORDER BY id LOOP
           PERFORM motet_link_audit_event(event);
         END LOOP;
       END $$""",
    "ALTER TABLE audit_events FORCE ROW LEVEL SECURITY",
)


def upgrade() -> None:
    run(
        """CREATE TABLE audit_links (
             chain uuid NOT NULL,
             seq bigint NOT NULL CHECK (seq > 0),
             event_id uuid NOT NULL UNIQUE REFERENCES audit_events (id),
             previous bytea NOT NULL CHECK (octet_length(previous) = 32),
             hash bytea NOT NULL CHECK (octet_length(hash) = 32),
             PRIMARY KEY (chain, seq)
           )""",
        "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_links"
        " FOR EACH STATEMENT EXECUTE FUNCTION motet_refuse_change()",
        "GRANT SELECT ON audit_links TO motet_system",  # and nobody but the trigger writes
        CONTENT,
        LINK,
        ON_COMMIT,
        "REVOKE ALL ON FUNCTION motet_audit_content(audit_events, uuid, bigint) FROM PUBLIC",
        "REVOKE ALL ON FUNCTION motet_link_audit_event(audit_events) FROM PUBLIC",
        "REVOKE ALL ON FUNCTION motet_chain_audit_event() FROM PUBLIC",
        *TAKE_UP_WHAT_IS_THERE,
        "CREATE CONSTRAINT TRIGGER chain AFTER INSERT ON audit_events DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION motet_chain_audit_event()",
    )


def downgrade() -> None:
    run(
        "DROP TRIGGER chain ON audit_events",
        "DROP FUNCTION motet_chain_audit_event()",
        "DROP FUNCTION motet_link_audit_event(audit_events)",
        "DROP FUNCTION motet_audit_content(audit_events, uuid, bigint)",
        "DROP TABLE audit_links",
    )
