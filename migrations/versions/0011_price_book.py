"""The price book: versions, each a whole list of prices. Nothing in it is ever changed."""

from __future__ import annotations

from migrations.ddl import run

revision = "0011"
down_revision = "0010"

PRICE = "bigint NOT NULL CHECK ({name} BETWEEN 0 AND 1000000000000)"


def upgrade() -> None:
    meters = ("input", "cached_input", "output", "answer_input", "answer_output")
    run(
        """CREATE TABLE price_book_versions (
             version bigint PRIMARY KEY CHECK (version > 0),
             currency text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
             effective_from timestamptz NOT NULL CHECK (mod(extract(epoch FROM effective_from), 900) = 0),
             note text NOT NULL,
             created_by text NOT NULL,
             created_at timestamptz NOT NULL DEFAULT now()
           )""",
        f"""CREATE TABLE prices (
             id uuid PRIMARY KEY,
             version bigint NOT NULL REFERENCES price_book_versions (version),
             model_kind text NOT NULL CHECK (model_kind IN ('base', 'any_adapter', 'adapter')),
             base_id text,
             owner_id uuid CHECK ((model_kind = 'adapter') = (owner_id IS NOT NULL)),
             adapter_name text CHECK ((model_kind = 'adapter') = (adapter_name IS NOT NULL)),
             service_class text CHECK (service_class IN ('interactive', 'standard', 'batch')),
             {", ".join(f"{name} {PRICE.format(name=name)}" for name in meters)}
           )""",
        "CREATE INDEX prices_version ON prices (version)",
        "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON prices"
        " FOR EACH STATEMENT EXECUTE FUNCTION motet_refuse_change()",
        "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON price_book_versions"
        " FOR EACH STATEMENT EXECUTE FUNCTION motet_refuse_change()",
        # Not for motet_app: a price of one adapter names its owner. Tenants see prices on their statements.
        "GRANT SELECT, INSERT ON price_book_versions, prices TO motet_system",
    )


def downgrade() -> None:
    run("DROP TABLE prices", "DROP TABLE price_book_versions")
