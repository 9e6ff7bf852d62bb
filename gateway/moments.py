"""Moments that every part can hold: Python, PostgreSQL, and asyncpg, to which the last microsecond of the
year 9999 is infinity, and infinity comes back without a zone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, TypeVar

from gateway.errors import BadRequest

EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)

MaybeMoment = TypeVar("MaybeMoment", datetime, datetime | None)


def is_storable(moment: datetime) -> bool:
    """Of an aware moment."""
    return EARLIEST <= moment < LATEST


def storable(moment: MaybeMoment, param: str) -> MaybeMoment:
    """The same moment. Raises `BadRequest`, which names `param`."""
    if moment is not None and not is_storable(moment):
        raise BadRequest(f"'{param}' must lie from 1970 to 8999.", param=param, code="invalid_value")
    return moment
