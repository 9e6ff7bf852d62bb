"""Replicas with pools, tokens of their own and a name that isn't their URL; which weights a base may have;
rules that send requests to pools."""

from __future__ import annotations

from migrations.ddl import run

revision = "0061"
down_revision = "0052"


def upgrade() -> None:
    run(
        """ALTER TABLE replicas
             ADD COLUMN id uuid NOT NULL DEFAULT gen_random_uuid(),
             ADD COLUMN source text NOT NULL DEFAULT 'operator'
               CONSTRAINT replicas_source CHECK (source IN ('listed', 'operator', 'self')),
             ADD COLUMN pools text[] NOT NULL DEFAULT '{general}',
             ADD COLUMN base_digest text,
             ADD COLUMN token bytea,
             ADD COLUMN token_previous bytea,
             ADD COLUMN token_changed_at timestamptz,
             ADD COLUMN removed_at timestamptz,
             ADD CONSTRAINT replicas_id UNIQUE (id)""",
        "ALTER TABLE bases ADD COLUMN digests text[]",
        """CREATE TABLE pool_rules (
             base_id text NOT NULL REFERENCES bases (base_id),
             position bigint NOT NULL CHECK (position > 0),
             pool text NOT NULL,
             fallback boolean NOT NULL,
             min_prompt_tokens bigint CHECK (min_prompt_tokens > 0),
             min_answer_tokens bigint CHECK (min_answer_tokens > 0),
             service_class text,
             tenant uuid,
             adapter text,
             PRIMARY KEY (base_id, position)
           )""",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON pool_rules TO motet_system",
    )


def downgrade() -> None:
    run(
        "DROP TABLE pool_rules",
        "ALTER TABLE bases DROP COLUMN digests",
        """ALTER TABLE replicas
             DROP CONSTRAINT replicas_id, DROP COLUMN id, DROP COLUMN source, DROP COLUMN pools,
             DROP COLUMN base_digest, DROP COLUMN token, DROP COLUMN token_previous,
             DROP COLUMN token_changed_at, DROP COLUMN removed_at""",
    )
