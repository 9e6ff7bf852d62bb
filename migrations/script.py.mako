"""${message}"""

from __future__ import annotations

from migrations.ddl import run

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    run()


def downgrade() -> None:
    run()
