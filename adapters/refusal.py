"""Why a request body was refused, in OpenAI's terms: a sentence, the field, and a code."""

from __future__ import annotations

import re

import msgspec


class RequestRefused(Exception):
    """The client's request can't be served as it stands. `status` is the HTTP status that says so."""

    needed: int | None = None  # tokens of one that is too long for the context, where they were counted
    most: int | None = None  # and what the context holds

    def __init__(self, message: str, param: str | None, code: str | None, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status


_HEAD, _TAIL = 500, 300
"""Characters kept of what msgspec says: a field's name is the client's, and may be as long as the body."""

_WHERE = re.compile(r"^(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`)?$", re.DOTALL)
_FIELD = re.compile(r"Object (?P<kind>contains unknown|missing required) field `(?P<name>[^`]*)`")
_BOUND = re.compile(
    r"Expected `(?P<type>int|float|str|array|object)` (?P<what>of length )?(?P<side>>=|<=|>|<) ?"
    r"(?P<bound>[^ ]+)"
)
_BOUND_CODES = {
    ("int", "low"): "integer_below_min_value",
    ("int", "high"): "integer_above_max_value",
    ("float", "low"): "decimal_below_min_value",
    ("float", "high"): "decimal_above_max_value",
    ("str", "low"): "string_below_min_length",
    ("str", "high"): "string_above_max_length",
    ("array", "low"): "empty_array",
    ("array", "high"): "array_above_max_length",
    ("object", "high"): "object_above_max_properties",
}


def refusal_of(error: Exception) -> RequestRefused:
    """The refusal for what msgspec says of a body: its text names the place as a path, which becomes
    `param`."""
    if not isinstance(error, msgspec.ValidationError):
        return RequestRefused("The body could not be parsed as JSON in UTF-8.", None, None)
    said = str(error)
    if len(said) > _HEAD + _TAIL:
        said = f"{said[:_HEAD]}…{said[-_TAIL:]}"
    match = _WHERE.match(said)
    assert match is not None  # the pattern takes any text
    what, path = match["what"], (match["path"] or "").lstrip(".")
    path = path.split("[...]")[0]  # msgspec says so of a key or value inside an object, without naming it
    if field := _FIELD.search(what):
        param = f"{path}.{field['name']}" if path else field["name"]
        if field["kind"].startswith("missing"):
            return RequestRefused(
                f"Missing required parameter: '{param}'.", param, "missing_required_parameter"
            )
        return RequestRefused(f"Unknown parameter: '{param}'.", param, "unknown_parameter")
    if bound := _BOUND.search(what):
        side = "low" if bound["side"].startswith(">") else "high"
        code = _BOUND_CODES.get((bound["type"], side), "invalid_value")
        return RequestRefused(f"Invalid '{path}': {_plain(what)}.", path or None, code)
    code = "invalid_type" if what.startswith("Expected") else "invalid_value"
    return RequestRefused(f"Invalid '{path or 'body'}': {_plain(what)}.", path or None, code)


def _plain(what: str) -> str:
    text = what.replace("`", "").strip()
    return text[:1].lower() + text[1:] if text.startswith(("Expected", "Invalid", "Number")) else text
