"""Which limit turned a request away, in numbers: for whoever has to explain it later."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """`by` names the limit, `owner.limit`: `key.requests_per_minute`, `queue.forecast`, `body.bytes`. The
    numbers are in that limit's own unit (requests, tokens, bytes; milliseconds of `queue.forecast` and
    `queue.deadline`); None = not known, or it makes no sense."""

    by: str
    limit: int | None = None
    needed: int | None = None
    available: int | None = None
