"""Rows that hold limits, as the limiter takes them."""

from __future__ import annotations

from gateway.models import Adapter, ApiKey, BudgetRow, Tenant
from gateway.principal import Budget, Limits, Period


def limits_of(row: Tenant | ApiKey | Adapter) -> Limits:
    return Limits(
        row.requests_per_minute,
        row.tokens_per_minute,
        row.max_parallel,
        row.input_tokens_per_minute,
        row.output_tokens_per_minute,
    )


def budget_of(row: BudgetRow) -> Budget:
    return Budget(bool(row.key_id), Period(row.period), int(row.amount), row.hard)
