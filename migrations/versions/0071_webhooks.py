"""Webhooks: what happened (the outbox), where tenants want to be told, and what became of it."""

from __future__ import annotations

from migrations.ddl import protect, run

revision = "0071"
down_revision = "0061"


def upgrade() -> None:
    run(
        """CREATE TABLE webhook_events (
             id uuid PRIMARY KEY,
             tenant_id uuid NOT NULL REFERENCES tenants (id),
             kind text NOT NULL,
             once text NOT NULL CHECK (length(once) BETWEEN 1 AND 200),
             data jsonb NOT NULL,
             created_at timestamptz NOT NULL DEFAULT now(),
             spread_at timestamptz,
             CONSTRAINT webhook_events_once UNIQUE (tenant_id, once)
           )""",
        "CREATE INDEX webhook_events_waiting ON webhook_events (created_at) WHERE spread_at IS NULL",
        "CREATE INDEX webhook_events_age ON webhook_events (created_at)",
        """CREATE TABLE webhook_endpoints (
             id uuid PRIMARY KEY,
             tenant_id uuid NOT NULL REFERENCES tenants (id),
             host text NOT NULL,
             url bytea NOT NULL,
             description text NOT NULL DEFAULT '',
             kinds text[],
             secret bytea NOT NULL,
             previous_secret bytea,
             previous_until timestamptz
               CHECK ((previous_until IS NULL) = (previous_secret IS NULL)),
             status text NOT NULL DEFAULT 'active'
               CONSTRAINT webhook_endpoints_status CHECK (status IN ('active', 'disabled')),
             disabled_reason text,
             failing_since timestamptz,
             created_at timestamptz NOT NULL DEFAULT now(),
             updated_at timestamptz NOT NULL DEFAULT now()
           )""",
        "CREATE INDEX webhook_endpoints_tenant ON webhook_endpoints (tenant_id, id)",
        """CREATE TABLE webhook_deliveries (
             id uuid PRIMARY KEY,
             tenant_id uuid NOT NULL REFERENCES tenants (id),
             endpoint_id uuid NOT NULL REFERENCES webhook_endpoints (id) ON DELETE CASCADE,
             event_id uuid NOT NULL REFERENCES webhook_events (id) ON DELETE CASCADE,
             state text NOT NULL DEFAULT 'waiting'
               CONSTRAINT webhook_deliveries_state CHECK (state IN ('waiting', 'delivered', 'failed')),
             attempts bigint NOT NULL DEFAULT 0,
             begun_at timestamptz NOT NULL DEFAULT now(),
             next_at timestamptz NOT NULL DEFAULT now(),
             last_status bigint,
             last_error text,
             last_ms bigint,
             created_at timestamptz NOT NULL DEFAULT now(),
             finished_at timestamptz,
             CONSTRAINT webhook_deliveries_once UNIQUE (endpoint_id, event_id)
           )""",
        "CREATE INDEX webhook_deliveries_due ON webhook_deliveries (next_at) WHERE state = 'waiting'",
        "CREATE INDEX webhook_deliveries_tenant ON webhook_deliveries (tenant_id, endpoint_id, id)",
        "CREATE INDEX webhook_deliveries_event ON webhook_deliveries (event_id)",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON webhook_events, webhook_endpoints, webhook_deliveries"
        " TO motet_system",
    )
    protect("webhook_events", app="SELECT, INSERT")
    protect("webhook_endpoints")
    protect("webhook_deliveries", app="SELECT, INSERT, UPDATE")


def downgrade() -> None:
    run("DROP TABLE webhook_deliveries", "DROP TABLE webhook_endpoints", "DROP TABLE webhook_events")
