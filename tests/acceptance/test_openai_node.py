"""openai-node against the walk: however the bytes are cut, and however the stream ends. It needs node, and
npm with a registry that has the SDK."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.inference.client import ClientPatience
from tests.acceptance.conftest import Record
from tests.gateway.conftest import redis  # noqa: F401  fixtures
from tests.gateway.inference.conftest import (  # noqa: F401  fixtures
    Worker,
    base_and_encoder,
    make_worker,
    upstream,
)
from tests.gateway.inference.upstream import Script, Upstream

PROGRAM = Path(__file__).parent / "openai_node"
TEXT = "Héllo 世界 👩‍🚀!"
WORDS = ["Hé", "llo", " 世界", " 👩‍🚀", "!"]
NPM_S = 300
Ask = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program beside the SDK."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    folder = tmp_path_factory.mktemp("node") / "program"
    shutil.copytree(PROGRAM, folder, ignore=shutil.ignore_patterns("node_modules"))
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=NPM_S, check=False)
    if done.returncode != 0:
        pytest.skip(f"the SDK can't be installed: {done.stderr[-300:]}")
    return folder


async def asked(folder: Path, worker: Worker, **more: Any) -> dict[str, Any]:
    body = {"model": "pirate", "messages": [{"role": "user", "content": "Hi"}], "stream": True, **more}
    process = await asyncio.create_subprocess_exec(
        "node", "read.mjs", f"{worker.url}/v1", json.dumps(body), cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    found: dict[str, Any] = json.loads(said)
    return found


async def test_openai_node(
    installed: Path,
    make_worker: Callable[..., Awaitable[Worker]],  # noqa: F811
    upstream: Upstream,  # noqa: F811
    record: Record,
) -> None:
    worker = await make_worker(upstream, client=ClientPatience(keep_alive_s=0.01))
    read = cut = 0
    for newline in ("\n", "\r\n"):
        for chunk_bytes, pause_s in ((1, 0.0), (3, 0.0), (1, 0.05), (None, 0.05)):
            upstream.script = Script(WORDS, newline=newline, chunk_bytes=chunk_bytes, pause_s=pause_s)
            seen = await asked(installed, worker)
            assert (seen["texts"], seen["finishes"], seen["error"]) == ({"0": TEXT}, {"0": "stop"}, None)
            assert seen["usages"] == []
            read += 1
    upstream.script = Script(WORDS, chunk_bytes=5)
    seen = await asked(installed, worker, n=4, stream_options={"include_usage": True})
    assert seen["texts"] == {str(index): TEXT for index in range(4)}
    assert seen["usages"] == [{"tokens": 4 * len(WORDS), "choices": 0}]
    for cut_after in range(1, len(WORDS) + 2):
        upstream.script = Script(WORDS, cut_after=cut_after)
        worker = await make_worker(upstream)  # to each its own: a replica that fails so often is given a rest
        seen = await asked(installed, worker)
        assert seen["error"]["name"] == "APIError"
        assert "broke off" in seen["error"]["message"]
        cut += 1
    worker = await make_worker(upstream)
    upstream.script = Script(WORDS, cut_after=0)
    assert (await asked(installed, worker))["error"]["status"] == 503
    upstream.script = Script(WORDS, fail_after=2)
    assert "The engine failed" in (await asked(installed, worker))["error"]["message"]
    await worker.settled()
    version = json.loads((PROGRAM / "package.json").read_text())["dependencies"]["openai"]
    record.write(
        "openai-node against the gateway in front of a scripted replica: bytes one at a time, CRLF, "
        "characters cut in two, comments every 10 ms, a cut after each frame, four choices with their count.",
        {"openai-node": version, "streams read": read + 1, "cut streams that raised": f"{cut} of {cut}"},
    )
