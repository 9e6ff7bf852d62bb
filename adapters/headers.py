"""Header and comment-frame names spoken between gateway and engine. The body passes through unchanged."""

from __future__ import annotations

from typing import Final

REQUEST: Final = "x-motet-request"
ATTEMPT: Final = "x-motet-attempt"
TENANT: Final = "x-motet-tenant"
KEY: Final = "x-motet-key"
ARTEFACT: Final = "x-motet-artefact"  # absent = base
OWNER: Final = "x-motet-owner"  # tenant that owns the artefact; absent = base (docs/decisions/0002)
VERSION: Final = "x-motet-version"
SALT: Final = "x-motet-salt"
SERVICE_CLASS: Final = "x-motet-class"
DEADLINE_MS: Final = "x-motet-deadline-ms"
MAX_TOKENS: Final = "x-motet-max-tokens"
PURPOSE: Final = "x-motet-purpose"

TRAILER_PREFIX: Final = b": motet "
"""Starts the comment frame that ends every engine stream (and, as the header `x-motet-trailer`, every unary
answer): JSON of usage, timings, tier and outcome, which the gateway keeps for itself."""

TRAILER_HEADER: Final = "x-motet-trailer"
