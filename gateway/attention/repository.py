"""All SQL of what needs attention: few rows of few tables, each by an index or out of a small table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import text

from gateway.db import SystemRead
from gateway.events.repository import first_id
from gateway.traffic.minute import PLATFORM

MOST: Final = 20
"""Of a kind."""
MOST_MS: Final = 3_000

_BRIEFLY = text(f"SELECT set_config('statement_timeout', '{MOST_MS}', true)")

_REJECTED = text(
    f"""
    SELECT v.tenant_id, t.name AS tenant_name, a.name AS adapter, v.number, v.reason, v.created_at AS since
    FROM adapter_versions v
    JOIN adapters a ON a.id = v.adapter_id AND a.last_number = v.number
    JOIN tenants t ON t.id = v.tenant_id AND t.lifecycle = 'active'
    WHERE v.id >= :first AND v.state IN ('rejected', 'refused')
    ORDER BY v.id DESC LIMIT {MOST}
    """  # noqa: S608  a constant
)
_LATE_PROOFS = text(
    f"""
    SELECT v.tenant_id, t.name AS tenant_name, a.name AS adapter, v.number, max(p.tries) AS tries,
           max(p.reason) AS reason, min(p.created_at) AS since
    FROM proof_tasks p
    JOIN adapter_versions v ON v.id = p.version_id
    JOIN adapters a ON a.id = v.adapter_id
    JOIN tenants t ON t.id = v.tenant_id AND t.lifecycle = 'active'
    WHERE p.created_at < :before
    GROUP BY v.id, t.name, a.name ORDER BY since LIMIT {MOST}
    """  # noqa: S608  a constant
)
_ROLLOUTS = text(
    """
    SELECT r.tenant_id, t.name AS tenant_name, a.name AS adapter, r.id, r.alias, r.to_version AS number,
           r.state, r.reason->>'message' AS reason, coalesce(r.ended_at, r.updated_at) AS since
    FROM rollouts r
    JOIN adapters a ON a.id = r.adapter_id
    JOIN tenants t ON t.id = r.tenant_id AND t.lifecycle = 'active'
    WHERE (r.state = 'paused' OR (r.state = 'rolled_back' AND r.ended_at >= :after
           AND r.reason IS NOT NULL))
      AND NOT EXISTS (SELECT FROM rollouts n WHERE (n.adapter_id, n.alias) = (r.adapter_id, r.alias)
                      AND n.tenant_id = r.tenant_id AND n.id > r.id)
    ORDER BY since DESC LIMIT :most
    """
)
_LEDGER = text(
    """
    SELECT (SELECT count(*) FROM usage_uncounted WHERE purpose = 'tenant' AND outcome <> 'taken_over'
            AND ended_at < :before) AS unknown,
           (SELECT min(ended_at) FROM usage_uncounted WHERE purpose = 'tenant' AND outcome <> 'taken_over'
            AND ended_at < :before) AS unknown_since,
           (SELECT count(DISTINCT tenant_id) FROM usage_unpriced) AS unpriced_tenants,
           (SELECT min(bucket) FROM usage_unpriced) AS unpriced_since,
           motet_journals_complete_until() AS complete_until
    """
)
_REQUESTS = text(
    """
    SELECT coalesce(sum(served + cached + replayed), 0)::bigint AS well,
           coalesce(sum(failed), 0)::bigint AS failed,
           coalesce(sum(refused_by_queue), 0)::bigint AS turned_away
    FROM request_minutes WHERE tenant_id = :platform AND at >= :after AND adapter = '(all)'
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Since when what is worth telling; before when what is late."""

    recent: datetime
    lately: datetime
    late_proof: datetime
    late_count: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Rows of `repository`'s statements, by their own columns."""

    rejected: Sequence[Any]
    late_proofs: Sequence[Any]
    rollouts: Sequence[Any]
    ledger: Any
    requests: Any


def windows(now: datetime) -> Windows:
    return Windows(
        recent=now - timedelta(days=7),
        lately=now - timedelta(minutes=5),
        late_proof=now - timedelta(minutes=10),
        late_count=now - timedelta(minutes=2),
    )


async def look(session: SystemRead, at: Windows) -> Found:
    await session.execute(_BRIEFLY)
    return Found(
        rejected=(await session.execute(_REJECTED, {"first": first_id(at.recent)})).all(),
        late_proofs=(await session.execute(_LATE_PROOFS, {"before": at.late_proof})).all(),
        rollouts=(await session.execute(_ROLLOUTS, {"after": at.recent, "most": MOST})).all(),
        ledger=(await session.execute(_LEDGER, {"before": at.late_count})).one(),
        requests=(await session.execute(_REQUESTS, {"after": at.lately, "platform": PLATFORM})).one(),
    )
