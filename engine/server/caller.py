"""Who asks, as the gateway's headers say. Without them (a developer at a replica) the base answers nobody."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from adapters import headers
from engine.core.protocol import AdapterRef, Purpose, ServiceClass
from engine.server.errors import bad_request

_ARTEFACT = re.compile(r"[0-9a-f]{64}")
_OWNER = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")
_NAME = re.compile(r"[\x21-\x7e]{1,128}")
_DIGITS = re.compile(r"[0-9]{1,10}")
MAX_NUMBER = 2**31 - 1

E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Caller:
    request: str
    attempt: int
    tenant: str
    key: str
    adapter: AdapterRef | None
    version: str
    salt: str
    purpose: Purpose
    service_class: ServiceClass
    deadline_ms: int | None
    max_tokens: int | None


def read_caller(raw: Iterable[tuple[bytes, bytes]]) -> Caller:
    """Raises a 400 that names the header."""
    values = {
        name.decode("latin-1"): value.decode("latin-1") for name, value in raw if name.startswith(b"x-motet-")
    }
    return Caller(
        request=_name(values, headers.REQUEST) or str(uuid.uuid4()),
        attempt=_number(values, headers.ATTEMPT) or 1,
        tenant=_name(values, headers.TENANT),
        key=_name(values, headers.KEY),
        adapter=_adapter(values),
        version=_name(values, headers.VERSION),
        salt=_name(values, headers.SALT),
        purpose=_member(values, headers.PURPOSE, Purpose.TENANT),
        service_class=_member(values, headers.SERVICE_CLASS, ServiceClass.STANDARD),
        deadline_ms=_number(values, headers.DEADLINE_MS),
        max_tokens=_number(values, headers.MAX_TOKENS),
    )


def adapter_ref(artefact: str, owner: str) -> AdapterRef:
    """Checks both: they become a path in the store."""
    checked_artefact(artefact)
    if not _OWNER.fullmatch(owner):
        raise bad_request("The owner of an artefact is missing or malformed.", headers.OWNER, "invalid_value")
    return AdapterRef(artefact, owner)


def checked_artefact(artefact: str) -> str:
    if not _ARTEFACT.fullmatch(artefact):
        raise bad_request("An artefact id is 64 hexadecimal digits.", headers.ARTEFACT, "invalid_value")
    return artefact


def _adapter(values: dict[str, str]) -> AdapterRef | None:
    artefact, owner = values.get(headers.ARTEFACT), values.get(headers.OWNER, "")
    if artefact is None:
        return None
    return adapter_ref(artefact, owner)


def _name(values: dict[str, str], header: str) -> str:
    value = values.get(header, "")
    if value and not _NAME.fullmatch(value):
        raise bad_request(f"The header {header} is malformed.", header, "invalid_value")
    return value


def _number(values: dict[str, str], header: str) -> int | None:
    value = values.get(header)
    if value is None:
        return None
    if not (_DIGITS.fullmatch(value) and 1 <= int(value) <= MAX_NUMBER):
        raise bad_request(f"The header {header} is no whole number in range.", header, "invalid_value")
    return int(value)


def _member(values: dict[str, str], header: str, default: E) -> E:
    value = values.get(header)
    if value is None:
        return default
    try:
        return type(default)(value)
    except ValueError:
        raise bad_request(
            f"The header {header} has no value {value[:32]!r}.", header, "invalid_value"
        ) from None
