"""Aliases over several versions, and the rollouts that step their weights."""

from __future__ import annotations

from migrations.ddl import protect, run

revision = "0114"
down_revision = "0113"

TOUCH = """CREATE FUNCTION motet_touch_alias() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- Whoever moves an alias without a word about its spread means all of it, releases that know none included.
  IF NEW.version <> OLD.version AND NEW.spread IS NOT DISTINCT FROM OLD.spread THEN
    NEW.spread := NULL;
  END IF;
  NEW.revision := nextval('alias_revisions');
  RETURN NEW;
END $$"""

ROLLOUTS = """CREATE TABLE rollouts (
  id uuid PRIMARY KEY,
  tenant_id uuid NOT NULL,
  adapter_id uuid NOT NULL,
  alias text NOT NULL,
  from_version bigint NOT NULL,
  to_version bigint NOT NULL,
  plan jsonb NOT NULL,
  state text NOT NULL CONSTRAINT rollouts_state
    CHECK (state IN ('running', 'paused', 'promoted', 'rolled_back', 'superseded')),
  step bigint NOT NULL DEFAULT 0,
  accepted_step bigint,
  step_began_at timestamptz,
  settled_until timestamptz,
  settled jsonb NOT NULL DEFAULT '{}',
  shown jsonb NOT NULL DEFAULT '{}',
  alias_revision bigint NOT NULL,
  reason jsonb,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  ended_at timestamptz,
  CONSTRAINT rollouts_owner UNIQUE (tenant_id, id),
  FOREIGN KEY (tenant_id, adapter_id) REFERENCES adapters (tenant_id, id),
  FOREIGN KEY (adapter_id, from_version) REFERENCES adapter_versions (adapter_id, number),
  FOREIGN KEY (adapter_id, to_version) REFERENCES adapter_versions (adapter_id, number)
)"""

EVENTS = """CREATE TABLE rollout_events (
  id uuid PRIMARY KEY,
  tenant_id uuid NOT NULL,
  rollout_id uuid NOT NULL,
  kind text NOT NULL,
  actor text NOT NULL,
  details jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  FOREIGN KEY (tenant_id, rollout_id) REFERENCES rollouts (tenant_id, id) ON DELETE CASCADE
)"""


def upgrade() -> None:
    run(
        "CREATE SEQUENCE alias_revisions",
        "GRANT USAGE ON SEQUENCE alias_revisions TO motet_app, motet_system",
        "ALTER TABLE aliases ADD COLUMN spread jsonb,"
        " ADD COLUMN revision bigint NOT NULL DEFAULT nextval('alias_revisions')",
        TOUCH,
        "CREATE TRIGGER touch_alias BEFORE UPDATE ON aliases FOR EACH ROW"
        " EXECUTE FUNCTION motet_touch_alias()",
        ROLLOUTS,
        "CREATE UNIQUE INDEX rollouts_one_at_a_time ON rollouts (adapter_id, alias)"
        " WHERE state IN ('running', 'paused')",
        "CREATE INDEX rollouts_of_adapter ON rollouts (tenant_id, adapter_id, id)",
        EVENTS,
        "CREATE INDEX rollout_events_of ON rollout_events (tenant_id, rollout_id, id)",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON rollouts, rollout_events TO motet_system",
    )
    protect("rollouts")
    protect("rollout_events")


def downgrade() -> None:
    run(
        "DROP TABLE rollout_events",
        "DROP TABLE rollouts",
        "DROP TRIGGER touch_alias ON aliases",
        "DROP FUNCTION motet_touch_alias()",
        "ALTER TABLE aliases DROP COLUMN spread, DROP COLUMN revision",
        "DROP SEQUENCE alias_revisions",
    )
