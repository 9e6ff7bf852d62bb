"""Keeps credentials out of the audit log, wherever somebody may have typed one: a key's name, a note, a
target. What is written there can never be taken back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

REDACTED: Final = "[redacted]"

_SECRETS = re.compile(
    r"\bmta?_[a-z2-7]{12}_[a-z2-7]{16,}"  # ours: `gateway/credentials.py`
    r"|\b(?:sk|whsec|ghp|xox[abp])[-_][A-Za-z0-9_+/=-]{16,}"  # of others, pasted by mistake
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\bBearer\s+\S+"
    r"|(?<=://)[^\s/:@]*:[^\s/@]+(?=@)"  # user:password of a URL
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+",  # a JWT
    re.ASCII | re.DOTALL,
)
_NAMES = re.compile(
    r"password|passwd|secret|authorization|api_?key$|private_?key|^token$|_token$|pepper|salt$"
)


def redacted_text(text: str) -> str:
    return _SECRETS.sub(REDACTED, text)


def redacted(details: Mapping[str, Any]) -> dict[str, Any]:
    """The same, without what looks like a credential or stands under the name of one."""
    return {redacted_text(str(name)): _value(str(name), value) for name, value in details.items()}


def _value(name: str, value: Any) -> Any:
    if _NAMES.search(name.lower()) and value is not None and not isinstance(value, bool):
        return REDACTED
    match value:
        case str():
            return redacted_text(value)
        case Mapping():
            return redacted(value)
        case list() | tuple() | set() | frozenset():
            return [_value("", each) for each in value]
        case _:
            return value
