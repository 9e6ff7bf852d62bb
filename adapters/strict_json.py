"""JSON from a tenant: one reading only. Duplicate keys, NaN and deep nesting are errors, not
last-one-wins."""

from __future__ import annotations

import json
from typing import Any, NoReturn


class InvalidJson(Exception):
    """Not one JSON object in UTF-8, or one that two parsers could read differently."""


def decode_object(raw: bytes) -> dict[str, Any]:
    """Decodes one object; raises `InvalidJson` with a reason fit for the client."""
    try:
        value = json.loads(
            raw.decode("utf-8"), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant
        )
    except UnicodeDecodeError:
        raise InvalidJson("not UTF-8") from None
    except RecursionError:
        raise InvalidJson("nested too deeply") from None
    except ValueError as error:  # JSONDecodeError, and integers of more digits than Python converts
        raise InvalidJson(str(error)[:200]) from None
    if not isinstance(value, dict):
        raise InvalidJson("not a JSON object")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # add returns None
        raise InvalidJson(f"the key {json.dumps(twice)[:120]} stands twice")
    return unique


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidJson(f"{name} is not JSON")
