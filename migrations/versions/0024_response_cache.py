"""Which tenants have a response cache, how old its answers grow, and the epoch that drops it."""

from __future__ import annotations

from migrations.ddl import run

revision = "0024"
down_revision = "0013"


def upgrade() -> None:
    run(
        """ALTER TABLE tenants
             ADD COLUMN response_cache text NOT NULL DEFAULT 'off'
               CONSTRAINT tenants_response_cache CHECK (response_cache IN ('off', 'greedy', 'seeded')),
             ADD COLUMN response_cache_age_s bigint NOT NULL DEFAULT 3600
               CHECK (response_cache_age_s BETWEEN 1 AND 604800),
             ADD COLUMN cache_epoch bigint NOT NULL DEFAULT 1"""
    )


def downgrade() -> None:
    run(
        """ALTER TABLE tenants
             DROP COLUMN response_cache, DROP COLUMN response_cache_age_s, DROP COLUMN cache_epoch"""
    )
