"""No credential comes to lie in the audit log, wherever it was typed."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from gateway.api_keys.authenticator import API_KEY
from gateway.audit.redaction import REDACTED, redacted, redacted_text
from gateway.audit.service import Actor, Change, record
from gateway.db import Database
from gateway.principal import TenantId

KEY = API_KEY.mint().text
SECRETS = [
    KEY,
    KEY.replace("mt_", "mta_"),
    f"Bearer {'x' * 20}",
    "sk-proj-abcdefghijklmnop1234",
    "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "AKIAIOSFODNN7EXAMPLE",
    "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----",
]
NAMES = ["key", "admin-token", "bearer", "sk", "webhook", "jwt", "aws", "pem"]  # a secret is new in each run


@pytest.mark.parametrize("secret", SECRETS, ids=NAMES)
async def test_a_secret_planted_in_any_field_is_not_kept(db: Database, tenant: TenantId, secret: str) -> None:
    hidden = secret.removeprefix("Bearer ")
    details = {
        "name": f"my {secret} key",
        "list": [secret, {"deep": [secret]}],
        secret: 1,
        "nested": {"a": {"b": secret}},
    }
    async with db.system_session() as session:
        record(session, Actor(f"key:{secret}"), Change("api_key.create", f"x {secret}", tenant, details))
    async with db.system_session() as session:
        query = text("SELECT e::text FROM audit_events e WHERE tenant_id = :tenant")
        kept = (await session.execute(query, {"tenant": tenant})).scalars().all()
    assert len(kept) == 1
    assert REDACTED in kept[0]
    assert hidden not in kept[0]
    assert hidden.splitlines()[-1] not in kept[0]


def test_what_stands_under_a_secrets_name_is_left_out() -> None:
    given = {"password": "hunter2", "client_secret": {"v": "x"}, "pepper": 12, "has_password": True}
    assert redacted(given) == {
        "password": REDACTED,
        "client_secret": REDACTED,
        "pepper": REDACTED,
        "has_password": True,
    }


def test_a_password_in_a_url_is_left_out_and_the_rest_stays() -> None:
    assert redacted_text("postgres://me:pw@host/db") == f"postgres://{REDACTED}@host/db"
    for plain in ("pirate@3", "admin:a@b.c", "key:abcdefgh2345", "tokens_per_minute", "2026-11"):
        assert redacted_text(plain) == plain
    kept = {"tokens_per_minute": 5, "scopes": ["inference"], "max_parallel": None}
    assert redacted(kept) == kept
