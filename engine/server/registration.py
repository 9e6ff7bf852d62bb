"""A replica tells its gateway that it is there, every few seconds: then nobody has to list it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import aiohttp
import msgspec
import structlog

from engine.config import EngineSettings
from engine.core.protocol import Ready

log = structlog.get_logger("engine.server")

PATH: Final = "/api/v1/replica-registration"
TIMEOUT_S: Final = 10.0
BEAT_S: Final = 5.0
"""Until the gateway names another interval, and after a failure."""
LONGEST_BEAT_S: Final = 60.0
MAX_ANSWER_BYTES: Final = 64 * 1024


async def keep_registered(settings: EngineSettings, ready: asyncio.Future[Ready]) -> None:
    """From when the core holds its model, until cancelled. A gateway that can't be reached, or says no, is
    asked again: the replica serves whoever knows it meanwhile."""
    assert settings.register_token is not None
    body = _body(settings, await asyncio.shield(ready))
    headers = {"authorization": f"Bearer {settings.register_token.get_secret_value()}"}
    url = settings.register_url.rstrip("/") + PATH
    said = ""
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_S), headers=headers, trust_env=False
    ) as session:
        while True:
            pause_s = BEAT_S
            try:
                async with session.put(url, json=body, allow_redirects=False) as answer:
                    raw = await answer.content.read(MAX_ANSWER_BYTES)
                    outcome = "registered"
                    if answer.status == 200:
                        pause_s = _pause_of(msgspec.json.decode(raw))
                    else:
                        outcome = f"refused with {answer.status}: {raw[:200]!r}"
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                outcome = f"failed: {type(error).__name__}"
            if outcome != said:
                said = outcome
                log.info("registration", gateway=settings.register_url, outcome=outcome)
            await asyncio.sleep(pause_s)


def _body(settings: EngineSettings, core: Ready) -> dict[str, Any]:
    return {
        "url": settings.advertise_url.rstrip("/"),
        "base_id": core.base_id,
        "base_digest": core.base_digest,
        "token": settings.token.get_secret_value(),
        "pools": settings.pool_names,
    }


def _pause_of(answer: Any) -> float:
    named = answer.get("heartbeat_s") if isinstance(answer, dict) else None
    return min(max(float(named), 1.0), LONGEST_BEAT_S) if isinstance(named, (int, float)) else BEAT_S
