"""What an API key may do, from where, and with which of its two secrets; a tenant's weight in the queue; and
a notice to whoever listens when a tenant's epoch moves."""

from __future__ import annotations

from migrations.ddl import run

revision = "0051"
down_revision = "0024"

NOTIFY = """
CREATE FUNCTION motet_notify_epoch() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN PERFORM pg_notify('motet_epochs', NEW.id || ' ' || NEW.epoch); RETURN NULL; END $$
"""


def upgrade() -> None:
    run(
        """ALTER TABLE api_keys
             ADD COLUMN allowed_networks text[],
             ADD COLUMN previous_hmac bytea
               CONSTRAINT api_keys_previous_hmac CHECK (octet_length(previous_hmac) = 32),
             ADD COLUMN previous_pepper_version text,
             ADD COLUMN previous_until timestamptz,
             ADD COLUMN previous_used_at timestamptz,
             ADD COLUMN rotated_at timestamptz,
             ADD CONSTRAINT api_keys_previous
               CHECK (num_nulls(previous_hmac, previous_pepper_version, previous_until) IN (0, 3))""",
        """ALTER TABLE tenants
             ADD COLUMN share_weight bigint NOT NULL DEFAULT 1
               CONSTRAINT tenants_share_weight CHECK (share_weight BETWEEN 1 AND 100)""",
        NOTIFY,
        "CREATE TRIGGER notify_epoch AFTER UPDATE OF epoch ON tenants"
        " FOR EACH ROW WHEN (OLD.epoch IS DISTINCT FROM NEW.epoch) EXECUTE FUNCTION motet_notify_epoch()",
    )


def downgrade() -> None:
    run(
        "DROP TRIGGER notify_epoch ON tenants",
        "DROP FUNCTION motet_notify_epoch()",
        "ALTER TABLE tenants DROP COLUMN share_weight",
        """ALTER TABLE api_keys
             DROP CONSTRAINT api_keys_previous,
             DROP COLUMN allowed_networks, DROP COLUMN previous_hmac, DROP COLUMN previous_pepper_version,
             DROP COLUMN previous_until, DROP COLUMN previous_used_at, DROP COLUMN rotated_at""",
    )
