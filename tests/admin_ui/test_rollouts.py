"""Aliases moved by hand and by rollouts, and two versions beside each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import httpx
import pytest
from playwright.sync_api import Page, expect

from adapters.base import BaseSpec
from deploy.bench.random_adapters import Recipe, write_adapter
from tests.admin_ui.conftest import Ui
from tests.rig.rig import Rig, TenantKey

PARTS = ("adapter_config.json", "adapter_model.safetensors")
RECIPES = (
    Recipe(1, rank=2, layers=[0], targets=["q_proj"]),
    Recipe(2, rank=2, ranks={"v_proj": 4}, layers=[0], targets=["q_proj", "v_proj"]),
)
ENDS_MS = 60_000  # control looks each second; beside other work


@dataclass(frozen=True)
class Shop:
    """A tenant's adapter of two versions; `live` is the first."""

    rig: Rig
    key: TenantKey
    name: str
    artefacts: tuple[str, str]

    @property
    def api(self) -> str:
        return f"/api/v1/tenants/{self.key.tenant}/adapters/{self.name}"

    @property
    def page(self) -> str:
        return f"/tenants/{self.key.tenant}/adapters/{self.name}"

    def versions(self, num: int, alias: str = "live") -> list[int]:
        """Which versions so many conversations are answered by; 0: by an error."""
        with httpx.Client(base_url=self.rig.base_url, headers=self.key.headers, timeout=60) as client:
            return [self._version(client, alias) for _ in range(num)]

    def _version(self, client: httpx.Client, alias: str) -> int:
        message = {"role": "user", "content": uuid4().hex}
        body = {"model": f"{self.name}@{alias}", "messages": [message], "max_tokens": 4}
        answer = client.post("/v1/chat/completions", json=body)
        return int(answer.headers["x-motet-version"]) if answer.status_code == 200 else 0

    @contextmanager
    def traffic(self) -> Iterator[None]:
        """Somebody asks and asks."""
        over = Event()

        def ask() -> None:
            while not over.is_set():
                self.versions(5)
                over.wait(0.05)

        asking = Thread(target=ask)
        asking.start()
        try:
            yield
        finally:
            over.set()
            asking.join()


@pytest.fixture(scope="session")
def folders(stack: Rig, demo_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base, root = BaseSpec.from_dir(demo_model_dir, stack.base_name), tmp_path_factory.mktemp("rollouts")
    return [write_adapter(root / str(recipe.seed), base, recipe) for recipe in RECIPES]


@pytest.fixture
def shop(
    stack: Rig, admin: httpx.Client, new_tenant: Callable[..., dict[str, Any]], folders: list[Path]
) -> Shop:
    tenant, name = new_tenant()["id"], "pirate"
    artefacts = []
    for number, folder in enumerate(folders, 1):
        files = {part: (folder / part).read_bytes() for part in PARTS}
        place = f"/api/v1/tenants/{tenant}/adapters/{name}/versions"
        made = admin.post(place, params={"alias": "live" if number == 1 else "none"}, files=files)
        assert made.status_code == 201, made.text
        artefacts.append(made.json()["artefact"])
    key = stack.key_of(admin, tenant)
    return Shop(stack, key, name, (artefacts[0], artefacts[1]))


def press(page: Page, slider: str, key: str, times: int = 1) -> None:
    found = page.get_by_role("slider", name=slider)
    found.focus()
    for _ in range(times):
        page.keyboard.press(key)


def save(page: Page, told: str) -> None:
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text(re.compile(told))).to_be_visible()


def test_a_slider_moves_an_alias_and_the_next_requests_hear_of_it(ui: Ui, shop: Shop) -> None:
    page = ui.log_in(f"{shop.page}/aliases")
    page.get_by_role("button", name="Move pirate@live…").click()
    expect(page).to_have_url(re.compile(r"[?&]open=live"))
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Add a version").click()
    page.get_by_role("option", name="Version 2").click()
    press(page, "Share of version 2", "ArrowRight", 5)
    expect(dialog.get_by_label("Version 1", exact=True)).to_have_value(re.compile("95"))
    expect(dialog.get_by_text(re.compile("5.% of its conversations change their version"))).to_be_visible()
    save(page, "pirate@live points to 95.% version 1, 5.% version 2.")
    met = shop.versions(200)
    assert set(met) == {1, 2}
    assert met.count(2) < 40  # 10 of 200 are to be expected
    dialog.get_by_label("Version 2", exact=True).fill("60")
    expect(page.get_by_role("slider", name="Share of version 1")).to_have_attribute("aria-valuenow", "40")
    press(page, "Share of version 2", "End")
    save(page, "pirate@live points to 100.% version 2.")
    assert set(shop.versions(10)) == {2}
    page.keyboard.press("Escape")
    row = page.get_by_role("row").filter(has_text="pirate@live")
    expect(row).to_contain_text(re.compile("version 2: 100.%"))


def test_two_who_move_one_alias_hear_of_each_other(ui: Ui, admin: httpx.Client, shop: Shop) -> None:
    page = ui.log_in(f"{shop.page}/aliases?open=live", expected={412})
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Add a version").click()
    page.get_by_role("option", name="Version 2").click()
    dialog.get_by_label("Version 2", exact=True).fill("10")
    theirs = {"weights": {"1": 70, "2": 30}}
    admin.put(f"{shop.api}/aliases/live", json=theirs).raise_for_status()
    dialog.get_by_role("button", name="Save", exact=True).click()
    notice = dialog.get_by_role("alert").filter(has_text="Somebody else changed this")
    expect(notice.get_by_role("row", name=re.compile("90.% version 1.*70.% version 1"))).to_be_visible()
    notice.get_by_role("button", name="Take what is there").click()
    expect(dialog.get_by_label("Version 2", exact=True)).to_have_value(re.compile("30"))
    assert admin.get(f"{shop.api}/aliases/live").json()["weights"] == theirs["weights"]


def test_an_alias_is_made_and_deleted_by_name(ui: Ui, shop: Shop) -> None:
    page = ui.log_in(f"{shop.page}/aliases", expected={412})
    page.get_by_role("button", name="Create alias…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Points to version").click()
    page.get_by_role("option", name="Version 2").click()
    for name in ("live", "canary"):  # the first is there already
        dialog.get_by_label("Name", exact=True).fill(name)
        dialog.get_by_role("button", name="Create", exact=True).dblclick()
        if name == "live":
            expect(dialog.get_by_text("There is an alias of this name already.")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="pirate@canary")).to_be_visible()
    assert shop.versions(1, "canary") == [2]
    page.get_by_role("button", name="Delete pirate@canary…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("pirate@canary is unknown: 404")).to_be_visible()
    expect(dialog.get_by_text(re.compile("had [0-9]+.requests? under all of its names"))).to_be_visible()
    dialog.get_by_label("Type pirate@canary to go on").fill("pirate@canary")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("row").filter(has_text="pirate@canary")).to_have_count(0)
    assert shop.versions(1, "canary") == [0]


def begin(page: Page, *, weights: tuple[int, ...], hold_s: int, requests: int) -> None:
    """A rollout of version 2, by its form."""
    page.get_by_role("button", name="Begin rollout…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("An upload that moves live meanwhile ends this rollout")).to_be_visible()
    expect(dialog.get_by_text("Only this tenant's own requests are counted")).to_be_visible()
    dialog.get_by_label("New version").click()
    page.get_by_role("option", name="Version 2").click()
    for _ in range(4 - len(weights)):
        dialog.get_by_role("button", name="Remove step 1").click()
    for number, weight in enumerate(weights, 1):
        dialog.get_by_label(f"Share of step {number}, percent").fill(str(weight))
        dialog.get_by_label(f"Step {number} is held for, seconds").fill(str(hold_s))
        dialog.get_by_label(f"Requests of step {number}, at least").fill(str(requests))
    dialog.get_by_role("button", name="Begin", exact=True).dblclick()
    expect(page.get_by_role("heading", name="pirate@live: version 1 → 2")).to_be_visible()


def test_a_canary_goes_its_way_and_is_promoted(ui: Ui, admin: httpx.Client, shop: Shop) -> None:
    page = ui.log_in(f"{shop.page}/rollouts")
    begin(page, weights=(50, 100), hold_s=0, requests=3)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("paused", exact=True)).to_be_visible()
    with shop.traffic():
        page.get_by_role("button", name="Resume").click()
        figures = page.get_by_role("table", name="Figures of the old and the new version")
        expect(figures.get_by_role("row", name=re.compile("^Requests [1-9]"))).to_be_visible(timeout=ENDS_MS)
        expect(page.get_by_text("promoted", exact=True)).to_be_visible(timeout=ENDS_MS)
    assert set(shop.versions(5)) == {2}
    expect(page.get_by_text("After its last step, by itself.")).to_be_visible()
    happened = page.get_by_role("table", name=re.compile("What happened"))
    for text in ("Begun, in steps of 50, 100 %", "Step 1 passed", "Promoted in step 2"):
        expect(happened.get_by_text(text)).to_be_visible()
    expect(page.get_by_role("button", name="Roll back…")).to_have_count(0)
    page.get_by_role("link", name="All rollouts").click()
    expect(page.get_by_role("row").filter(has_text="live: 1 → 2")).to_contain_text("promoted")
    assert len(admin.get(f"{shop.api}/rollouts").json()["data"]) == 1  # of a double click


def test_a_canary_that_goes_wrong_goes_back_and_says_why(ui: Ui, shop: Shop) -> None:
    shop.rig.break_artefact(shop.artefacts[1], "not_finite")
    page = ui.log_in(f"{shop.page}/rollouts")
    begin(page, weights=(50,), hold_s=600, requests=1000)
    with shop.traffic():
        ended = page.get_by_role("status").filter(has_text="It went back to the old version")
        expect(ended).to_be_visible(timeout=ENDS_MS)
    expect(ended).to_contain_text(
        re.compile("not_finite: [0-9]+ of its [0-9]+ requests computed to no number")
    )
    happened = page.get_by_role("table", name=re.compile("What happened"))
    expect(happened.get_by_text(re.compile("Rolled back in step 1. not_finite"))).to_be_visible()
    figures = page.get_by_role("table", name="Figures of the old and the new version")
    expect(figures.get_by_role("row", name=re.compile("No number .NaN. 0 [1-9]"))).to_be_visible()
    assert set(shop.versions(5)) == {1}


def test_a_rollout_is_taken_back_by_hand_and_refused_while_one_is_there(
    ui: Ui, admin: httpx.Client, shop: Shop
) -> None:
    body = {"to": 2, "steps": [{"weight": 20, "hold_s": 600}], "rollback_on": {"error_rate": None}}
    made = admin.post(f"{shop.api}/rollouts", json=body).json()
    page = ui.log_in(f"{shop.page}/aliases")
    row = page.get_by_role("row").filter(has_text="pirate@live")
    expect(row.get_by_role("button")).to_have_count(0)
    row.get_by_role("link", name="Look at the rollout of pirate@live").click()
    expect(page).to_have_url(re.compile(f"/rollouts/{made['id']}$"))
    page.get_by_role("button", name="Roll back…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("version 1 answers all of pirate@live")).to_be_visible()
    dialog.get_by_role("button", name="Roll back").click()
    expect(page.get_by_text("rolled_back", exact=True)).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="human: By admin:")).to_be_visible()
    page.get_by_role("tab", name="Aliases").click()
    expect(row.get_by_role("button", name="Move pirate@live…")).to_be_visible()


def test_what_changed_between_two_versions_comes_first(ui: Ui, shop: Shop) -> None:
    page = ui.log_in(f"{shop.page}/diff")
    fields = page.get_by_role("region", name="Config, weights, sizes and proof")
    expect(fields.get_by_role("row", name="weights ranks 2 2, 4")).to_be_visible()
    expect(
        fields.get_by_role("row", name=re.compile("^config target_modules q_proj q_proj, v_proj"))
    ).to_be_visible()
    expect(fields.get_by_role("row", name=re.compile("lora_alpha"))).to_have_count(0)
    modules = page.get_by_role("region", name="Modules", exact=True)
    expect(modules.get_by_role("row", name=re.compile("0 v_proj as the base rank 4"))).to_be_visible()
    page.get_by_role("switch", name="Also what is the same").check()
    expect(fields.get_by_role("row", name=re.compile("config lora_alpha 16 16"))).to_be_visible()
    page.get_by_role("button", name="Swap").click()
    expect(fields.get_by_role("row", name="weights ranks 2, 4 2")).to_be_visible()
    expect(page).to_have_url(re.compile("all=true"))
