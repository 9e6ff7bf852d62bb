"""Adapters for tests of the UI: made, brought by the API, chosen in a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Page

Maker = Callable[..., dict[str, Any]]
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def uploaded(
    admin: httpx.Client, tenant: str, name: str, folder: Path, alias: str = "live"
) -> dict[str, Any]:
    files = {part: (folder / part).read_bytes() for part in (CONFIG, WEIGHTS)}
    place = f"/api/v1/tenants/{tenant}/adapters/{name}/versions"
    made = admin.post(place, params={"alias": alias}, files=files)
    assert made.status_code in (200, 201), made.text
    version: dict[str, Any] = made.json()
    return version


def choose(page: Page, folder: Path) -> None:
    page.get_by_label("Folder", exact=True).set_input_files(folder)
