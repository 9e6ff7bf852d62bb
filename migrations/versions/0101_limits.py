"""Buckets by direction for tenants, keys and adapters, and money budgets."""

from __future__ import annotations

from migrations.ddl import protect, run

revision = "0101"
down_revision = "0093"

LIMIT = "ADD COLUMN {0} bigint CHECK ({0} > 0)"
BY_DIRECTION = ("input_tokens_per_minute", "output_tokens_per_minute")
OF_ADAPTERS = ("requests_per_minute", "tokens_per_minute", "max_parallel", *BY_DIRECTION)


def upgrade() -> None:
    added = ", ".join(LIMIT.format(name) for name in BY_DIRECTION)
    run(
        f"ALTER TABLE tenants {added}",
        f"ALTER TABLE api_keys {added}",
        f"ALTER TABLE adapters {', '.join(LIMIT.format(name) for name in OF_ADAPTERS)}",
        """CREATE TABLE budgets (
             tenant_id uuid NOT NULL REFERENCES tenants (id),
             key_id text NOT NULL,
             period text NOT NULL CONSTRAINT budgets_period CHECK (period IN ('day', 'month')),
             amount numeric(38, 0) NOT NULL CONSTRAINT budgets_amount CHECK (amount > 0),
             hard boolean NOT NULL DEFAULT true,
             thresholds smallint[] NOT NULL DEFAULT '{50,80,100}',
             created_at timestamptz NOT NULL DEFAULT now(),
             updated_at timestamptz NOT NULL DEFAULT now(),
             PRIMARY KEY (tenant_id, key_id, period)
           )""",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON budgets TO motet_system",
    )
    protect("budgets")


def downgrade() -> None:
    run("DROP TABLE budgets")
    for table, columns in (("adapters", OF_ADAPTERS), ("api_keys", BY_DIRECTION), ("tenants", BY_DIRECTION)):
        run(f"ALTER TABLE {table} {', '.join(f'DROP COLUMN {name}' for name in columns)}")
