"""The text of a receipt: one line, fields in a fixed order, each with exactly one way to write it.

    v=1;request=<uuid>;attempt=<n>;tenant=<uuid>;model=adapter:<digest>;source=engine;input=812;cached=640;
    output=96;prices=7;outcome=finished;ended=2026-11-30T04:00:00.123456Z;key=<16 hex>;mac=<43 base64url>

(on one line). It says what the ledger's row says and nothing else, so it can be made again from that row,
byte for byte. The MAC is HMAC-SHA256 over everything before `;mac=`, under the tenant's own key.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Protocol
from uuid import UUID

HEADER: Final = "x-motet-receipt"
COMMENT: Final = b": motet-receipt "
MAX_CHARACTERS: Final = 600
UNKNOWN: Final = "unknown"

_WORD = re.compile(r"[a-z_]{1,32}")
_ID = re.compile(r"[0-9A-Za-z_.-]{1,128}")
_NUMBER = r"(?:0|[1-9][0-9]{0,17})"
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_FORM = re.compile(
    rf"v=1;request=(?P<request>{_UUID});attempt=(?P<attempt>{_NUMBER});tenant=(?P<tenant>{_UUID})"
    rf";model=(?P<kind>adapter|base):(?P<model>[0-9A-Za-z_.-]{{1,128}});source=(?P<source>engine|cache)"
    rf";input=(?P<input>{_NUMBER});cached=(?P<cached>{_NUMBER});output=(?P<output>{_NUMBER})"
    rf";prices=(?P<prices>{_NUMBER}|{UNKNOWN});outcome=(?P<outcome>[a-z_]{{1,32}})"
    r";ended=(?P<ended>[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z)"
    r";key=(?P<key>[0-9a-f]{16});mac=(?P<mac>[0-9A-Za-z_-]{43})"
)


class NoReceipt(ValueError):
    """The text is no receipt of this version."""


class Metered(Protocol):
    """What a journal line and a ledger row have alike; `gateway/models/usage_columns.py` says what each
    is."""

    @property
    def request_id(self) -> UUID: ...
    @property
    def attempt(self) -> int: ...
    @property
    def tenant_id(self) -> UUID: ...
    @property
    def base_id(self) -> str: ...
    @property
    def artefact(self) -> str | None: ...
    @property
    def source(self) -> str: ...
    @property
    def outcome(self) -> str: ...
    @property
    def billed_prompt_tokens(self) -> int: ...
    @property
    def billed_completion_tokens(self) -> int: ...
    @property
    def billed_cached_tokens(self) -> int: ...
    @property
    def price_book_version(self) -> int | None: ...
    @property
    def ended_at(self) -> datetime: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One that was read. Tokens are the billed ones; `cached_tokens` are part of `input_tokens`. `model`: an
    adapter's artefact digest, or the base's id."""

    request_id: UUID
    attempt: int
    tenant_id: UUID
    is_adapter: bool
    model: str
    source: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    price_book_version: int | None
    outcome: str
    ended_at: datetime
    key_id: str
    mac: bytes
    signed: bytes  # what the MAC is over


def unsigned(row: Metered, key_id: str) -> str:
    """The text that is signed."""
    model = f"base:{_id(row.base_id)}" if row.artefact is None else f"adapter:{_id(row.artefact)}"
    prices = UNKNOWN if row.price_book_version is None else row.price_book_version
    ended = row.ended_at if row.ended_at.tzinfo is UTC else row.ended_at.astimezone(UTC)
    return (
        f"v=1;request={row.request_id};attempt={row.attempt};tenant={row.tenant_id};model={model}"
        f";source={row.source};input={row.billed_prompt_tokens};cached={row.billed_cached_tokens}"
        f";output={row.billed_completion_tokens};prices={prices};outcome={_word(row.outcome)}"
        f";ended={ended.isoformat(timespec='microseconds')[:-6]}Z;key={key_id}"
    )


def signed(text: str, mac: bytes) -> str:
    return f"{text};mac={urlsafe_b64encode(mac).decode().rstrip('=')}"


def parse(text: str) -> Receipt:
    """Raises `NoReceipt`. Says nothing of the MAC."""
    found = _FORM.fullmatch(text) if len(text) <= MAX_CHARACTERS else None
    if found is None:
        raise NoReceipt("it is not a receipt of version 1")
    try:
        ended_at = datetime.fromisoformat(found["ended"])
    except ValueError as error:
        raise NoReceipt("its moment does not exist") from error
    return Receipt(
        request_id=UUID(found["request"]),
        attempt=int(found["attempt"]),
        tenant_id=UUID(found["tenant"]),
        is_adapter=found["kind"] == "adapter",
        model=found["model"],
        source=found["source"],
        input_tokens=int(found["input"]),
        cached_tokens=int(found["cached"]),
        output_tokens=int(found["output"]),
        price_book_version=None if found["prices"] == UNKNOWN else int(found["prices"]),
        outcome=found["outcome"],
        ended_at=ended_at,
        key_id=found["key"],
        mac=urlsafe_b64decode(found["mac"] + "="),
        signed=text[: text.rindex(";mac=")].encode(),
    )


@lru_cache(maxsize=64)
def _word(outcome: str) -> str:
    """Engines' words are a closed set; another would break the form, in a row as in a receipt."""
    return outcome if _WORD.fullmatch(outcome) else "other"


@lru_cache(maxsize=4_096)
def _id(digest: str) -> str:
    return digest if _ID.fullmatch(digest) else "other"
