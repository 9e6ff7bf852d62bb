"""A fault of the object store as whoever asked hears it: what it is, and whether to come again."""

from __future__ import annotations

from typing import Final

from adapters.store import Corrupt, Denied, DiskFull, NoStore, NotFound, StoreError
from gateway.errors import Unavailable

PASSING_S: Final = 5.0
"""Something that may be over soon."""
OPERATORS_S: Final = 60.0
"""Something that goes on until an operator mends it."""

_TOLD: Final[tuple[tuple[type[StoreError], str, str, float], ...]] = (
    (Denied, "store_denied", "The object store refuses the platform's credentials.", OPERATORS_S),
    (NoStore, "store_missing", "The object store's bucket or folder does not exist.", OPERATORS_S),
    (DiskFull, "store_full", "The object store, or the disk on the way to it, is full.", OPERATORS_S),
    (Corrupt, "store_corrupt", "The object store kept other bytes than it was given.", PASSING_S),
    (NotFound, "store_object_missing", "The object is not in the object store.", OPERATORS_S),
)


def store_unavailable(error: StoreError) -> Unavailable:
    """Always 503: none of it is the client's fault. `code` says which fault; paths and the store's own words
    stay in the log."""
    for kind, code, message, retry_after_s in _TOLD:
        if isinstance(error, kind):
            return Unavailable(f"{message} Nothing was kept.", retry_after_s=retry_after_s, code=code)
    message = "The object store does not answer. Nothing was kept; try again shortly."
    return Unavailable(message, retry_after_s=PASSING_S, code="store_unavailable")
