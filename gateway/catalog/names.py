"""How a request names a model: `[owner/]name[@version|@alias]`."""

from __future__ import annotations

import re
from dataclasses import dataclass

LIVE = "live"
"""The alias that a bare name stands for."""

NAME_PATTERN = r"[a-z0-9][a-z0-9._-]{0,62}"
MAX_VERSION = 2**31 - 1

_NAME = re.compile(NAME_PATTERN)
_MODEL = re.compile(rf"(?:(?P<owner>{NAME_PATTERN})/)?(?P<name>{NAME_PATTERN})(?:@(?P<at>{NAME_PATTERN}))?")


@dataclass(frozen=True, slots=True)
class ModelName:
    """A parsed `model`. Exactly one of `version` (digits) and `alias` (anything else) is set."""

    name: str
    owner: str | None  # a tenant's name; None = the asking tenant
    version: int | None
    alias: str | None

    @property
    def adapter(self) -> str:
        """Which adapter, whatever of it: `name`, or `owner/name`. What a key's `allowed_models` names."""
        return self.name if self.owner is None else f"{self.owner}/{self.name}"

    @property
    def at(self) -> str:
        """What follows the `@`, or would."""
        return self.alias if self.alias is not None else str(self.version)


def is_name(text: str) -> bool:
    """Whether `text` can name an adapter."""
    return _NAME.fullmatch(text) is not None


def is_shared_name(text: str) -> bool:
    """Whether `text` can name another tenant's adapter: `owner/name`."""
    name = parse_model(text)
    return name is not None and name.owner is not None and name.adapter == text


def parse_model(text: str) -> ModelName | None:
    """The parts of `text`, or None when it can't name anything (which answers like an unknown name)."""
    match = _MODEL.fullmatch(text)
    if match is None:
        return None
    at = match["at"] or LIVE
    if not at.isdigit():
        return ModelName(match["name"], match["owner"], version=None, alias=at)
    version = int(at) if len(at) <= 10 else 0
    if not 1 <= version <= MAX_VERSION or at.startswith("0"):
        return None
    return ModelName(match["name"], match["owner"], version=version, alias=None)
