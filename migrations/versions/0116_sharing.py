"""Adapters that other tenants may use: who may, and the few functions that let exactly that through.

The walls of the catalog stay as they are: a tenant's session sees its own rows. What is shared with it, it
learns from functions that run with their owner's rights, and the owner is walled too: by the policies
`shared` it sees what is shared with the tenant of the transaction, and no other row.
"""

from __future__ import annotations

from migrations.ddl import CURRENT_TENANT, protect, run

revision = "0116"
down_revision = "0115"

TABLE = (
    """CREATE TABLE adapter_shares (
         id uuid PRIMARY KEY,
         tenant_id uuid NOT NULL,
         adapter_id uuid NOT NULL,
         adapter_name text NOT NULL,
         recipient_id uuid REFERENCES tenants (id),
         reachable text[],
         created_at timestamptz NOT NULL DEFAULT now(),
         updated_at timestamptz NOT NULL DEFAULT now(),
         CONSTRAINT adapter_shares_once UNIQUE NULLS NOT DISTINCT (adapter_id, recipient_id),
         CONSTRAINT adapter_shares_others CHECK (recipient_id <> tenant_id),
         FOREIGN KEY (tenant_id, adapter_id) REFERENCES adapters (tenant_id, id)
       )""",
    "CREATE INDEX adapter_shares_name ON adapter_shares (adapter_name, recipient_id)",
    "CREATE INDEX adapter_shares_recipient ON adapter_shares (recipient_id)",
    "CREATE INDEX adapter_shares_owner ON adapter_shares (tenant_id)",
    "CREATE INDEX usage_rollups_owner ON usage_rollups (owner_id, bucket) WHERE owner_id <> tenant_id",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON adapter_shares TO motet_system",
)

WITH_ME = f"(recipient_id IS NULL OR recipient_id = {CURRENT_TENANT}) AND tenant_id <> {CURRENT_TENANT}"
OF_MINE = f"owner_id = {CURRENT_TENANT} AND owner_id <> tenant_id"
SHARED = "EXISTS (SELECT FROM adapter_shares s WHERE s.adapter_id = {table}.{column})"

# What the functions' owner sees, beside whatever they ask: nothing without a tenant, for then none is true.
POLICIES = {
    "adapter_shares": WITH_ME,
    "adapters": SHARED.format(table="adapters", column="id"),
    "adapter_versions": SHARED.format(table="adapter_versions", column="adapter_id"),
    "aliases": SHARED.format(table="aliases", column="adapter_id"),
    "usage_rollups": OF_MINE,
    "tenants": "EXISTS (SELECT FROM adapter_shares s WHERE s.tenant_id = tenants.id)"
    " OR EXISTS (SELECT FROM usage_rollups r WHERE r.tenant_id = tenants.id AND r.owner_id <> tenants.id)",
    "usage_arrivals": "true",  # one moment is told of it, the same to all tenants
}

# Begins at what is shared with whoever asks, and goes on only from there: an owner that does not exist, one
# that shares nothing, and an adapter that is shared with others are the same steps.
FIND = f"""
CREATE FUNCTION motet_shared_adapter(of_base text, of_owner text, of_name text, wanted text)
RETURNS TABLE (owner_id uuid, owner_epoch bigint) LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog
AS $$
  WITH mine AS MATERIALIZED (
    SELECT tenant_id, adapter_id FROM public.adapter_shares
    WHERE adapter_name = of_name AND {WITH_ME} AND (reachable IS NULL OR wanted = ANY (reachable))
  )
  SELECT DISTINCT t.id, t.epoch
  FROM mine JOIN public.tenants t ON t.id = mine.tenant_id
    JOIN public.adapters a ON a.id = mine.adapter_id
  WHERE t.name = of_owner AND t.lifecycle = 'active' AND a.base_id = of_base
$$
"""  # noqa: S608  the texts are this file's

LIST = f"""
CREATE FUNCTION motet_shared_adapters(of_base text, after_owner text, after_name text, most int)
RETURNS TABLE (owner_name text, name text, reachable text[], shared_at timestamptz, live_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog
AS $$
  WITH mine AS MATERIALIZED (
    SELECT tenant_id, adapter_id, min(created_at) AS shared_at, bool_or(reachable IS NULL) AS whole
    FROM public.adapter_shares WHERE {WITH_ME} GROUP BY tenant_id, adapter_id
  )
  SELECT t.name, a.name, CASE WHEN NOT mine.whole THEN named.names END, mine.shared_at, live.created_at
  FROM mine JOIN public.tenants t ON t.id = mine.tenant_id
    JOIN public.adapters a ON a.id = mine.adapter_id
    CROSS JOIN LATERAL (
      SELECT array_agg(DISTINCT each ORDER BY each) AS names
      FROM public.adapter_shares s, unnest(s.reachable) each
      WHERE s.adapter_id = mine.adapter_id
        AND (s.recipient_id IS NULL OR s.recipient_id = {CURRENT_TENANT})
    ) named
    LEFT JOIN LATERAL (
      SELECT v.created_at FROM public.aliases l
        JOIN public.adapter_versions v ON v.adapter_id = l.adapter_id AND v.number = l.version
      WHERE l.adapter_id = mine.adapter_id AND l.name = 'live' AND v.state = 'ready'
        AND (mine.whole OR 'live' = ANY (named.names))
    ) live ON true
  WHERE t.lifecycle = 'active' AND a.base_id = of_base AND (t.name, a.name) > (after_owner, after_name)
  ORDER BY t.name, a.name LIMIT most
$$
"""  # noqa: S608  the texts are this file's

USAGE = f"""
CREATE FUNCTION motet_shared_usage(edges timestamptz[], of_adapter text, most int)
RETURNS TABLE (day int, tenant_name text, adapter_name text, requests numeric, prompt numeric,
               completion numeric, cached numeric)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog
AS $$
  SELECT width_bucket(r.bucket, edges), t.name, r.adapter_name, sum(r.requests), sum(r.prompt_tokens),
         sum(r.completion_tokens), sum(r.cached_tokens)
  FROM public.usage_rollups r JOIN public.tenants t ON t.id = r.tenant_id
  WHERE r.owner_id = {CURRENT_TENANT} AND r.owner_id <> r.tenant_id
    AND r.bucket >= edges[1] AND r.bucket < edges[array_upper(edges, 1)]
    AND (of_adapter IS NULL OR r.adapter_name = of_adapter)
  GROUP BY 1, 2, 3 HAVING sum(r.requests) > 0 ORDER BY 1, 2, 3 LIMIT most
$$
"""  # noqa: S608  the texts are this file's

COMPLETE_UNTIL = """
CREATE FUNCTION motet_shared_usage_complete_until() RETURNS timestamptz LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog
AS $$
  SELECT CASE WHEN told IS NOT NULL THEN least(told, (SELECT min(earliest) FROM public.usage_arrivals)) END
  FROM public.motet_journals_complete_until() told
$$
"""

FUNCTIONS = {
    "motet_shared_adapter(text, text, text, text)": FIND,
    "motet_shared_adapters(text, text, text, int)": LIST,
    "motet_shared_usage(timestamptz[], text, int)": USAGE,
    "motet_shared_usage_complete_until()": COMPLETE_UNTIL,
}


def upgrade() -> None:
    run(*TABLE)
    protect("adapter_shares", app="SELECT, DELETE")  # an owner's shares end with its adapter
    for table, seen in POLICIES.items():
        run(f"CREATE POLICY shared ON {table} FOR SELECT TO CURRENT_ROLE USING ({seen})")
    for signature, function in FUNCTIONS.items():
        run(
            function,
            f"REVOKE ALL ON FUNCTION {signature} FROM PUBLIC",
            f"GRANT EXECUTE ON FUNCTION {signature} TO motet_app",
        )


def downgrade() -> None:
    for signature in FUNCTIONS:
        run(f"DROP FUNCTION {signature}")
    for table in POLICIES:
        run(f"DROP POLICY shared ON {table}")
    run("DROP INDEX usage_rollups_owner", "DROP TABLE adapter_shares")
