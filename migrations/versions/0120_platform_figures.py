"""What all tenants come to together, in a row of its own a minute, for the time before workers counted it.

A gateway of before goes on: it writes rows of tenants only, which then lack in the platform's. Workers that
would write meanwhile keep what they have, and write it after.
"""

from __future__ import annotations

from migrations.ddl import run

revision = "0120"
down_revision = "0119"

PLATFORM = "00000000-0000-0000-0000-000000000000"
SUMS = (
    "served", "cached", "replayed", "refused_by_limit", "refused_by_queue", "refused_otherwise", "failed",
    "client_left", "prompt_tokens", "completion_tokens", "cached_tokens",
)  # fmt: skip
HISTOGRAMS = ("ttft", "inter_token", "queue", "total")
ARRAYS = ", ".join(f"array_agg({name}::integer ORDER BY n) AS {name}" for name in HISTOGRAMS)


# The owner sees no row of a table with forced row security: it is lifted for this.
def upgrade() -> None:
    run(
        "ALTER TABLE request_minutes NO FORCE ROW LEVEL SECURITY",
        f"""
        WITH sums AS (
          SELECT at, span_s, {", ".join(f"sum({name})::bigint AS {name}" for name in SUMS)}
          FROM request_minutes WHERE adapter = '(all)' GROUP BY 1, 2
        ), buckets AS (
          SELECT at, span_s, n, {", ".join(f"coalesce(sum(b.{name}), 0) AS {name}" for name in HISTOGRAMS)}
          FROM request_minutes m, unnest({", ".join(f"m.{name}" for name in HISTOGRAMS)})
            WITH ORDINALITY AS b({", ".join(HISTOGRAMS)}, n)
          WHERE m.adapter = '(all)' GROUP BY 1, 2, 3
        ), arrays AS (
          SELECT at, span_s, {ARRAYS}
          FROM buckets GROUP BY 1, 2
        )
        INSERT INTO request_minutes
          (tenant_id, at, adapter, source, sequence, span_s, {", ".join((*SUMS, *HISTOGRAMS))})
        SELECT '{PLATFORM}', at, '(all)', gen_random_uuid(), 0, span_s, {", ".join((*SUMS, *HISTOGRAMS))}
        FROM sums JOIN arrays USING (at, span_s)
        """,  # noqa: S608  names are this file's
        "ALTER TABLE request_minutes FORCE ROW LEVEL SECURITY",
    )


def downgrade() -> None:
    run(
        "ALTER TABLE request_minutes NO FORCE ROW LEVEL SECURITY",
        f"DELETE FROM request_minutes WHERE tenant_id = '{PLATFORM}'",  # noqa: S608
        "ALTER TABLE request_minutes FORCE ROW LEVEL SECURITY",
    )
