"""Passwords of operators: argon2id, computed in a thread because it takes tens of milliseconds by design."""

from __future__ import annotations

import asyncio
import unicodedata

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

MIN_CHARACTERS = 12
MAX_CHARACTERS = 256

_hasher = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)  # OWASP's minimum for argon2id
_at_work = asyncio.Semaphore(2)  # each holds 19 MiB and a core

# Checked when nobody has the email, so that unknown emails take as long as wrong passwords.
NOBODY = _hasher.hash("nobody has this password")


async def hash_password(password: str) -> str:
    """Raises `ValueError` when the password is too short or too long."""
    if not MIN_CHARACTERS <= len(password) <= MAX_CHARACTERS:
        raise ValueError(f"A password has {MIN_CHARACTERS} to {MAX_CHARACTERS} characters.")
    async with _at_work:
        return await asyncio.to_thread(_hasher.hash, _canonical(password))


async def is_password(password: str, kept: str) -> bool:
    if len(password) > MAX_CHARACTERS:
        return False
    async with _at_work:
        return await asyncio.to_thread(_matches, _canonical(password), kept)


def _matches(password: str, kept: str) -> bool:
    try:
        return _hasher.verify(kept, password)
    except (VerificationError, InvalidHashError):
        return False


def _canonical(password: str) -> str:
    """The same keys pressed on another keyboard may give other code points (NIST SP 800-63B §3.1.1.2)."""
    return unicodedata.normalize("NFKC", password)
