"""What is deployed brings the admin UI, and is told where people find it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec.yaml

from gateway.admin_ui.build import FOLDER

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def test_the_image_has_the_admin_ui_where_the_gateway_looks() -> None:
    stages = re.split(r"^FROM ", (DEPLOY / "compose" / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]
    named = [stage.split("\n", 1)[0] for stage in stages]
    assert named == ["python:3.11-slim AS platform", "node:24-slim AS admin-ui", "platform"]
    platform, ui, final = stages
    assert "gateway.write_openapi /opt/openapi.json" in platform
    assert "COPY --from=platform /opt/openapi.json build/openapi.json" in ui
    assert f"COPY --from=admin-ui /opt/admin_ui/dist {FOLDER.relative_to(ROOT)}" in final
    for stage in stages:
        for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", stage, flags=re.MULTILINE):
            assert all((ROOT / source).exists() for source in sources.split()), sources
    kept_out = (ROOT / ".dockerignore").read_text().split()
    assert {"**/node_modules", "**/dist", "**/.env", "var"} <= set(kept_out)


def test_each_way_to_run_names_the_url_of_browsers() -> None:
    services: dict[str, Any] = msgspec.yaml.decode((DEPLOY / "compose" / "compose.yaml").read_bytes())[
        "services"
    ]
    for name in ("gateway", "control", "bootstrap"):
        assert services[name]["environment"]["MOTET_PUBLIC_URL"].startswith("${MOTET_PUBLIC_URL:-http")
    chart = DEPLOY / "helm" / "motet"
    template = (chart / "templates" / "_motet.tpl").read_text()
    values: dict[str, Any] = msgspec.yaml.decode((chart / "values.yaml").read_bytes())
    assert "MOTET_PUBLIC_URL, value: {{ .Values.publicUrl | quote }}" in template
    assert values["publicUrl"].startswith("https://")
    assert "gateway.admin_auth.bootstrap" in (chart / "templates" / "bootstrap.yaml").read_text()
