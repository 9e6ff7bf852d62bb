"""The uploads' own room: a real database, store and check of files, and a fake replica that says what it is
told to."""

from __future__ import annotations

from tests.gateway.catalog.test_intake import base, other, room, small

__all__ = ["base", "other", "room", "small"]
