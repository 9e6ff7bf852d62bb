"""Wire types of retention."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from gateway.retention.kinds import MAX_DAYS

Days = Annotated[int, Meta(ge=1, le=MAX_DAYS)]
KindName = Annotated[str, Meta(pattern=r"^[a-z_]{1,40}$")]


class RetentionPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Days by kind; null = the platform's default again. Kinds that are not named stay as they are."""

    days: Annotated[dict[KindName, Days | None], Meta(min_length=1, max_length=20)]


class RuleOut(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    what: str
    days: int
    default_days: int
    is_default: bool


class RetentionOut(msgspec.Struct, frozen=True, kw_only=True):
    """How long things of a tenant are kept. `rules` is as long as there are kinds."""

    rules: list[RuleOut]

    def fields(self) -> dict[str, dict[str, int | None]]:
        """What a patch may change, as it is."""
        return {"days": {rule.kind: None if rule.is_default else rule.days for rule in self.rules}}
