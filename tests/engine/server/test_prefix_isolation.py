"""The real model: KV of one tenant, adapter or salt is never found by another, and the answers are right."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import httpx

from adapters import headers
from tests.engine.server.running_engine import OWNER, EngineServer

PROMPT = "A tenant's prompt, long enough to fill several blocks of the cache. " * 5


def ask(server: EngineServer, tenant: str, adapter: str | None, salt: str) -> tuple[str, dict[str, Any]]:
    """The tokens' log-probabilities as they were sent, and the trailer."""
    told = {headers.TENANT: tenant, headers.SALT: salt}
    if adapter is not None:
        told |= {headers.ARTEFACT: server.artefacts[adapter], headers.OWNER: OWNER}
    body = {
        "model": "m",
        "prompt": PROMPT,
        "max_tokens": 6,
        "temperature": 0,
        "ignore_eos": True,
        "logprobs": 0,
    }
    reply = httpx.post(f"{server.url}/v1/completions", json=body, headers=server.headers | told, timeout=60)
    assert reply.status_code == 200, reply.text
    logprobs = json.dumps(reply.json()["choices"][0]["logprobs"]["token_logprobs"])
    return logprobs, json.loads(reply.headers[headers.TRAILER_HEADER])


def test_every_pair_of_tenant_adapter_and_salt_tries_to_find_the_others_kv(
    engine_server: EngineServer,
) -> None:
    """A salt that is an adapter's id, and one that is a tenant's name, are among them."""
    pirate = engine_server.artefacts["pirate"]
    ways = list(product(("t-1", "t-2"), (None, "pirate", "shout"), ("t-1", pirate)))
    answers: dict[str | None, str] = {}
    for is_again, (tenant, adapter, salt) in product((False, True), ways):
        logprobs, trailer = ask(engine_server, tenant, adapter, salt)
        usage = trailer["usage"]
        full_blocks = (usage["prompt"] - 1) // 16 * 16
        assert usage["cached"] == (full_blocks if is_again else 0), (tenant, adapter, salt)
        assert answers.setdefault(adapter, logprobs) == logprobs, "the same bits, from whichever cache"
    assert len(set(answers.values())) == 3, "each adapter changes the answer"
