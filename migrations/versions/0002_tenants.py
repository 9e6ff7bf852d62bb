"""Tenants and their API keys."""

from __future__ import annotations

from migrations.ddl import protect, run

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    run(
        """CREATE TABLE tenants (
             id uuid PRIMARY KEY,
             name text NOT NULL UNIQUE,
             status text NOT NULL DEFAULT 'active'
               CONSTRAINT tenants_status CHECK (status IN ('active', 'suspended')),
             salt text NOT NULL,
             epoch bigint NOT NULL DEFAULT 1,
             requests_per_minute bigint CHECK (requests_per_minute > 0),
             tokens_per_minute bigint CHECK (tokens_per_minute > 0),
             max_parallel bigint CHECK (max_parallel > 0),
             created_at timestamptz NOT NULL DEFAULT now(),
             updated_at timestamptz NOT NULL DEFAULT now()
           )""",
        """CREATE TABLE api_keys (
             id uuid PRIMARY KEY,
             tenant_id uuid NOT NULL REFERENCES tenants (id),
             key_id text NOT NULL UNIQUE,
             name text NOT NULL,
             secret_hmac bytea NOT NULL
               CONSTRAINT api_keys_secret_hmac CHECK (octet_length(secret_hmac) = 32),
             pepper_version text NOT NULL,
             scopes text[] NOT NULL,
             service_class text NOT NULL DEFAULT 'standard'
               CONSTRAINT api_keys_service_class
                 CHECK (service_class IN ('interactive', 'standard', 'batch')),
             allowed_models text[],
             requests_per_minute bigint CHECK (requests_per_minute > 0),
             tokens_per_minute bigint CHECK (tokens_per_minute > 0),
             max_parallel bigint CHECK (max_parallel > 0),
             created_at timestamptz NOT NULL DEFAULT now(),
             expires_at timestamptz,
             revoked_at timestamptz,
             last_used_at timestamptz
           )""",
        "CREATE INDEX api_keys_tenant ON api_keys (tenant_id, created_at)",
        "GRANT SELECT, INSERT, UPDATE ON tenants, api_keys TO motet_system",
    )
    # A tenant's own session may move its epoch and nothing else of its row.
    protect("tenants", "id", app="SELECT, UPDATE (epoch, updated_at)")
    protect("api_keys", app="SELECT, INSERT, UPDATE")


def downgrade() -> None:
    run("DROP TABLE api_keys", "DROP TABLE tenants")
