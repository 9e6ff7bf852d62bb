"""Dashboards and scrape configuration lean on what the running processes really say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx

from tests.running_platform import RunningPlatform

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
METRIC = re.compile(r"\b((?:vllm:|motet_)[a-z_]+)")


def dashboard_metrics() -> set[str]:
    panels = json.loads((DEPLOY / "grafana" / "motet.json").read_text())["panels"]
    found = METRIC.findall(" ".join(target["expr"] for panel in panels for target in panel["targets"]))
    return {name.removesuffix("_bucket") for name in found}


def exposed(text: str) -> set[str]:
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}


def test_every_metric_of_the_dashboard_exists(running_platform: RunningPlatform) -> None:
    demo = running_platform.demo()
    _answer_one(demo)  # a metric of several workers exists from its first event on
    gateway = httpx.get(demo["base_url"].removesuffix("/v1") + "/metrics", timeout=30)
    replica = demo["engines"][0]
    engine = httpx.get(
        f"{replica['url']}/metrics", headers={"authorization": f"Bearer {replica['token']}"}, timeout=30
    )
    assert gateway.status_code == engine.status_code == 200
    names = exposed(gateway.text) | exposed(engine.text)
    missing = {name for name in dashboard_metrics() if name not in names}
    assert not missing


def _answer_one(demo: dict[str, Any]) -> None:
    answer = httpx.post(
        f"{demo['base_url']}/completions",
        headers={"authorization": f"Bearer {demo['tenants'][0]['api_key']}"},
        json={"model": demo["base_model"], "prompt": "Hello", "max_tokens": 2},
        timeout=60,
    )
    assert answer.status_code == 200
