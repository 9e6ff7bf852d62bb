"""A running platform's own secrets, searched for in what a whole session of tests made it leave behind."""

from __future__ import annotations

import asyncio
import json

from tests.rig.planted import secret_part
from tests.rig.search import in_command_lines, in_files, in_redis, in_tables, superuser_url
from tests.running_platform import RunningPlatform

TERMINAL = "up.out"
"""What a person sees who starts it, with the keys of the demo; nothing of it is kept in a log."""
ELSEWHERE = frozenset({"postgres", "store", "cache"})
"""Tables are read as rows; artefacts are what tenants uploaded."""


def secrets_left_behind(platform: RunningPlatform) -> list[str]:
    """Where which of them was found: in files, tables, Redis and command lines."""
    demo = platform.demo()
    made: dict[str, str] = json.loads((platform.home / "secrets.json").read_text())
    keys = {f"key of {tenant['name']}": tenant["api_key"] for tenant in demo["tenants"]}
    secrets = {name: secret_part(text) for name, text in {**made, **keys}.items()}
    assert len(secrets) > 6
    _, found = in_files(platform.home, secrets, without=ELSEWHERE | {TERMINAL})
    _, rows = asyncio.run(in_tables(superuser_url(platform.home, demo["database_url"]), secrets))
    _, values = in_redis(demo["redis_url"], secrets)
    return [*found, *rows, *values, *in_command_lines([platform.pid], secrets)]
