"""The room of uploads and proofs."""

from __future__ import annotations

from tests.gateway.catalog.test_intake import base, other, room, small

__all__ = ["base", "other", "room", "small"]
