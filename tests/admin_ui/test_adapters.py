"""Adapters as people look at them, and take them away."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import httpx
import pytest
from playwright.sync_api import expect

from adapters.base import BaseSpec
from deploy.bench.random_adapters import Recipe, write_adapter
from tests.admin_ui.bringing import Maker, choose, uploaded
from tests.admin_ui.conftest import Ui
from tests.admin_ui.looking import settled, too_wide, violations
from tests.admin_ui.spoiled import bad


def test_a_version_is_retired_restored_and_purged(
    ui: Ui, admin: httpx.Client, new_tenant: Maker, base: BaseSpec, folder: Path, tmp_path: Path
) -> None:
    made = new_tenant()
    other = write_adapter(tmp_path / "two", base, Recipe(9, rank=2, layers=[0], targets=["q_proj"], std=0.2))
    uploaded(admin, made["id"], "pirate", folder)
    uploaded(admin, made["id"], "pirate", other, alias="next")
    page = ui.log_in(f"/tenants/{made['id']}/adapters/pirate/versions/1")
    page.get_by_role("button", name="Retire version…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Ends 1 version of")
    expect(dialog).to_contain_text("1 alias (live) of pirate, which had 0 requests in the last 24 h.")
    expect(dialog).to_contain_text("for 7 days")
    dialog.get_by_label("Type").fill("pirate@1")
    dialog.get_by_role("button", name="Retire").click()
    expect(page.get_by_text("Can be restored until")).to_be_visible()
    assert admin.get(f"/api/v1/tenants/{made['id']}/adapters/pirate").json()["aliases"] == {"next": 2}
    page.get_by_role("button", name="Restore version…").click()
    dialog.get_by_role("button", name="Restore").click()
    expect(page.get_by_text("Aliases again: live.")).to_be_visible()
    assert admin.get(f"/api/v1/tenants/{made['id']}/adapters/pirate").json()["aliases"] == {
        "live": 1,
        "next": 2,
    }

    page.goto(f"{ui.base_url}/admin/tenants/{made['id']}/adapters/pirate")
    expect(page.get_by_role("link", name="pirate@2")).to_be_visible()
    page.get_by_role("button", name="Retire adapter…").click()
    expect(dialog).to_contain_text("Ends 2 versions of")
    expect(dialog).to_contain_text("2 aliases (live, next)")
    dialog.get_by_label("Type").fill("pirate")
    dialog.get_by_role("button", name="Retire").click()
    expect(page.get_by_role("button", name="Restore adapter…")).to_be_visible()
    page.goto(f"{ui.base_url}/admin/tenants/{made['id']}/adapters")
    expect(page.get_by_text("There is no adapter yet")).to_be_visible()
    page.goto(f"{ui.base_url}/admin/tenants/{made['id']}/adapters?state=retired")
    page.get_by_role("link", name="pirate").click()
    page.get_by_role("button", name="Purge adapter…").click()
    expect(dialog).to_contain_text("Ends 2 versions of")
    dialog.get_by_role("button", name="Purge").click()
    expect(dialog.get_by_text("That is not the name.")).to_be_visible()
    dialog.get_by_label("Type").fill("pirate")
    dialog.get_by_role("button", name="Purge").click()
    expect(page.get_by_text("No byte is left", exact=True)).to_be_visible()
    expect(page.get_by_text("Version 2", exact=True)).to_be_visible()


def test_a_viewer_sees_adapters_and_nothing_to_change_them_with(
    ui: Ui, admin: httpx.Client, tenant: str, folder: Path
) -> None:
    uploaded(admin, tenant, "seen", folder)
    page = ui.log_in_at_provider("viewer", f"/tenants/{tenant}/adapters")
    page.get_by_role("link", name="seen").click()
    expect(page.get_by_role("link", name="seen@1")).to_be_visible()
    page.get_by_role("link", name="seen@1").click()
    expect(page.get_by_role("heading", name="Proof report")).to_be_visible()
    for action in ("Retire", "Purge", "Restore", "Prove again"):
        expect(page.get_by_role("button", name=action)).to_have_count(0)
    expect(page.get_by_role("link", name="Upload a version…")).to_have_count(0)


def test_adapters_of_others_stand_in_a_section_of_their_own(
    ui: Ui, admin: httpx.Client, new_tenant: Maker, folder: Path
) -> None:
    owner, user = new_tenant(), new_tenant()
    uploaded(admin, owner["id"], "lent", folder)
    share = f"/api/v1/tenants/{owner['id']}/adapters/lent/shares/{user['id']}"
    admin.put(share, json={}).raise_for_status()
    page = ui.log_in(f"/tenants/{user['id']}/adapters")
    section = page.get_by_role("region", name="Shared by other owners", exact=True)
    expect(section.get_by_role("row", name=f"{owner['name']}/lent live live")).to_be_visible()
    expect(page.get_by_text("There is no adapter yet")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_of_an_adapter_are_accessible(
    ui: Ui, admin: httpx.Client, new_tenant: Maker, folder: Path, scheme: Literal["light", "dark"]
) -> None:
    made = new_tenant()
    uploaded(admin, made["id"], "pirate", folder)
    one = f"{ui.base_url}/admin/tenants/{made['id']}/adapters/pirate"
    page = ui.log_in()
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    found: list[str] = []
    for place in (one, f"{one}/versions/1", f"{one}/limits"):
        page.goto(place)
        settled(page)
        found += violations(page)
        page.set_viewport_size({"width": 390, "height": 844})
        found += too_wide(page)
        page.set_viewport_size({"width": 1280, "height": 900})
    page.get_by_role("button", name="Purge adapter…").click()
    expect(page.get_by_role("dialog")).to_contain_text("Ends 1 version of")
    page.wait_for_timeout(300)  # it fades in, and axe measures colours
    found += violations(page)
    page.goto(f"{ui.base_url}/admin/tenants/{made['id']}/upload")
    choose(page, bad(folder, use_dora=True))
    page.get_by_role("button", name="Add a prompt").click()
    expect(page.get_by_role("alert").filter(has_text="Nothing was sent")).to_be_visible()
    found += violations(page)
    assert found == []


def test_an_adapters_limits_are_changed_by_what_was_changed(
    ui: Ui, admin: httpx.Client, new_tenant: Maker, folder: Path
) -> None:
    made = new_tenant()
    uploaded(admin, made["id"], "pirate", folder)
    place = f"/api/v1/tenants/{made['id']}/adapters/pirate/limits"
    page = ui.log_in(f"/tenants/{made['id']}/adapters/pirate")
    page.get_by_role("tab", name="Limits and placement").click()
    page.get_by_label("Requests at a time").fill("3")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    found = admin.get(place).json()
    assert (found["max_parallel"], found["requests_per_minute"]) == (3, None)
    expect(page.get_by_role("row", name="State left to traffic")).to_be_visible()
