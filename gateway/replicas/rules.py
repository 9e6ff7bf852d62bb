"""Which pool a request goes to: an operator's rules, in order; the first that fits decides. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import msgspec

from gateway.replicas.replica import GENERAL

MAX_RULES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRule:
    """Every condition that is not None must hold. `fallback`: to the general pool when no replica of `pool`
    can take the request; without it the request waits for one, and is refused when none is up."""

    pool: str
    fallback: bool = True
    min_prompt_tokens: int | None = None
    min_answer_tokens: int | None = None  # most that each choice may have: reasoning asks for much
    service_class: str | None = None
    tenant: UUID | None = None  # who asks
    adapter: str | None = None  # by its name


class Asking(msgspec.Struct, frozen=True):
    """What rules look at."""

    prompt_tokens: int
    answer_tokens: int
    service_class: str
    tenant: UUID
    adapter: str | None  # None = the base


def pool_of(rules: Sequence[PoolRule], asking: Asking) -> tuple[str, bool]:
    """The pool, and whether the general one may stand in for it."""
    for rule in rules:
        if _fits(rule, asking):
            return rule.pool, rule.fallback
    return GENERAL, True


def _fits(rule: PoolRule, asking: Asking) -> bool:
    return (
        (rule.min_prompt_tokens is None or asking.prompt_tokens >= rule.min_prompt_tokens)
        and (rule.min_answer_tokens is None or asking.answer_tokens >= rule.min_answer_tokens)
        and rule.service_class in (None, asking.service_class)
        and rule.tenant in (None, asking.tenant)
        and rule.adapter in (None, asking.adapter)
    )
