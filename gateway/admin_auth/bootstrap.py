"""The first operator. `python -m gateway.admin_auth.bootstrap` reads `MOTET_ADMIN_EMAIL`,
`MOTET_ADMIN_PASSWORD` and, optionally, `MOTET_ADMIN_TOKEN`; running it again with another password changes
the password and nothing else. Unless `MOTET_ADMIN_MUST_CHANGE_PASSWORD` is false, who logs in with it has to
choose another one first."""

from __future__ import annotations

import asyncio

from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from gateway.admin_auth import repository
from gateway.admin_auth.passwords import NOBODY, hash_password, is_password
from gateway.admin_auth.service import ADMIN_TOKEN
from gateway.audit.service import SYSTEM, Change, record
from gateway.credentials import Peppers
from gateway.db import Database
from gateway.ids import uuid7
from gateway.models import AdminToken


class BootstrapSettings(BaseSettings):
    """`MOTET_*` of the first operator."""

    model_config = SettingsConfigDict(env_prefix="MOTET_", frozen=True, extra="ignore")

    database_system_url: str
    pepper: SecretStr
    pepper_previous: SecretStr | None = None
    admin_email: str
    admin_password: SecretStr
    admin_token: SecretStr | None = None
    admin_must_change_password: bool = True


def new_admin_token() -> str:
    """A fresh token, `mta_…`; worth nothing until it is registered."""
    return ADMIN_TOKEN.mint().text


async def ensure_admin(
    db: Database,
    peppers: Peppers,
    email: str,
    password: str,
    token: str | None = None,
    *,
    must_change: bool = False,
) -> None:
    """Make sure that `email` may log in with `password`, and that `token` proves it.

    `must_change`: who logs in may do nothing before the password is another. The password of an earlier call,
    given again, changes nothing: who replaced it keeps their own. Raises `ValueError` for a password or token
    that can't be one.
    """
    secret = ADMIN_TOKEN.parse(token) if token is not None else None
    if token is not None and secret is None:
        raise ValueError("The admin token does not look like mta_…; make one with new_admin_token().")
    hashed = await hash_password(password)
    email = email.strip().lower()
    async with db.system_reader() as reading:
        known = await repository.find_by_email(reading, email)
    was_given = known is not None and await is_password(password, known.bootstrap_hash or NOBODY)
    async with db.system_session() as session:
        if known is not None and was_given:
            admin = await repository.make_operator(session, known.id)
        else:
            admin = await repository.put_admin(session, uuid7(), email, hashed, must_change=must_change)
        if secret is not None:
            row = AdminToken(
                id=uuid7(),
                admin_id=admin,
                token_id=secret.public_id,
                secret_hmac=peppers.seal(secret),
                pepper_version=peppers.current_version,
                name="bootstrap",
            )
            await repository.put_token(session, row)
        record(session, SYSTEM, Change("admin.bootstrap", email))


async def bootstrap(settings: BootstrapSettings) -> None:
    db = Database(settings.database_system_url, settings.database_system_url)
    token = settings.admin_token.get_secret_value() if settings.admin_token else None
    try:
        await ensure_admin(
            db,
            Peppers(settings.pepper, settings.pepper_previous),
            settings.admin_email,
            settings.admin_password.get_secret_value(),
            token,
            must_change=settings.admin_must_change_password,
        )
    finally:
        await db.close()


if __name__ == "__main__":
    asyncio.run(bootstrap(BootstrapSettings()))
