"""The hash chain of the audit log, read without trust in the database that keeps it.

    hash(n) = SHA-256(hash(n - 1) ‖ content(n)),  hash(0) = 32 zero bytes

The content is a JSON array of the event and its place, in the text that PostgreSQL gives jsonb; the trigger
that makes links (migration 0091) writes the same, and a test holds both equal. Whoever can rewrite the whole
database can also make a chain anew: a head that was kept elsewhere tells.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

GENESIS: Final = bytes(32)
PLATFORM: Final = UUID(int=0)
"""The chain of what belongs to no tenant."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event as it stands in its table; `details` in jsonb's own text."""

    id: UUID
    tenant: UUID | None
    actor: str
    action: str
    target: str
    details: str
    request_id: UUID | None
    created_at: datetime

    def content(self, chain: UUID, seq: int) -> str:
        """What the hash of its link covers."""
        at = self.created_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        parts = [
            _text(str(chain)),
            str(seq),
            _text(str(self.id)),
            _text(None if self.tenant is None else str(self.tenant)),
            _text(self.actor),
            _text(self.action),
            _text(self.target),
            self.details,
            _text(None if self.request_id is None else str(self.request_id)),
            _text(at),
        ]
        return f"[{', '.join(parts)}]"


@dataclass(frozen=True, slots=True)
class Link:
    """One place of a chain. `content` None: its event is gone."""

    seq: int
    event: UUID
    previous: bytes
    hash: bytes
    content: str | None


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a chain at some time: kept elsewhere, it tells whether the chain was cut or made anew."""

    chain: UUID
    seq: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class Broken:
    """The first place where a chain does not hold, and why."""

    seq: int
    event: UUID | None
    reason: str  # gap | previous | event_missing | content | head | truncated | unlinked


class Walk:
    """Follows one chain from `seq`, whose hash is `last` (0 and `GENESIS` = from its beginning)."""

    def __init__(self, seq: int = 0, last: bytes = GENESIS, kept: Head | None = None) -> None:
        self.seq = seq
        self.last = last
        self.checked = 0
        self._kept = kept

    def take(self, link: Link) -> Broken | None:
        """The next link; None while the chain holds."""
        reason = self._reason(link)
        if reason is not None:
            seq = self.seq + 1 if reason == "gap" else link.seq
            return Broken(seq, None if reason == "gap" else link.event, reason)
        self.seq, self.last = link.seq, link.hash
        self.checked += 1
        return None

    def end(self) -> Broken | None:
        """After the last link: whether the chain is as long as it was known to be."""
        if self._kept is not None and self._kept.seq > self.seq:
            return Broken(self.seq + 1, None, "truncated")
        return None

    def _reason(self, link: Link) -> str | None:
        if link.seq != self.seq + 1:
            return "gap"
        if link.previous != self.last:
            return "previous"
        if link.content is None:
            return "event_missing"
        if link.hash != hash_after(self.last, link.content):
            return "content"
        if self._kept is not None and link.seq == self._kept.seq and link.hash != self._kept.hash:
            return "head"
        return None


def hash_after(previous: bytes, content: str) -> bytes:
    return hashlib.sha256(previous + content.encode()).digest()


def _text(value: str | None) -> str:
    return "null" if value is None else json.dumps(value, ensure_ascii=False)
