"""What a tenant sees of its usage."""

from __future__ import annotations

from datetime import date

import msgspec

from gateway.usage.repository import UsageLine


class UsageRow(msgspec.Struct, frozen=True):
    """Billed tokens of one day (UTC) and one adapter; `adapter` null = the base."""

    day: date
    adapter: str | None
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int  # of the prompt tokens

    @classmethod
    def of(cls, line: UsageLine) -> UsageRow:
        return cls(
            line.day,
            line.adapter,
            line.requests,
            line.prompt_tokens,
            line.completion_tokens,
            line.cached_tokens,
        )


class UsageReport(msgspec.Struct, frozen=True):
    first: date
    last: date
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    data: list[UsageRow]

    @classmethod
    def of(cls, first: date, last: date, lines: list[UsageLine]) -> UsageReport:
        return cls(
            first,
            last,
            sum(line.requests for line in lines),
            sum(line.prompt_tokens for line in lines),
            sum(line.completion_tokens for line in lines),
            sum(line.cached_tokens for line in lines),
            [UsageRow.of(line) for line in lines],
        )
