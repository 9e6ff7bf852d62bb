"""Adapters as people bring them, look at them, and take them away."""

from __future__ import annotations

import base64
import hashlib
import json
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from adapters import peft_config
from adapters.base import BaseSpec
from adapters.safetensors_header import ITEM_BYTES
from deploy.bench.random_adapters import Recipe, write_adapter
from tests.admin_ui.conftest import Ui, fill_log_in
from tests.admin_ui.test_pages import settled, violations, wide
from tests.rig.rig import Rig

Maker = Callable[..., dict[str, Any]]
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
SOURCES = Path(__file__).resolve().parents[2] / "admin_ui" / "src" / "uploading"


@pytest.fixture(scope="session")
def base(stack: Rig, demo_model_dir: Path) -> BaseSpec:
    return BaseSpec.from_dir(demo_model_dir, stack.base_name)


@pytest.fixture
def folder(base: BaseSpec, tmp_path: Path) -> Path:
    """A small one that a replica takes."""
    return write_adapter(
        tmp_path / "pirate", base, Recipe(3, rank=2, layers=[0], targets=["q_proj"], std=0.2)
    )


@pytest.fixture
def large(base: BaseSpec, tmp_path: Path) -> Path:
    """Of three chunks."""
    return write_adapter(tmp_path / "large", base, Recipe(4, rank=32, std=0.05))


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


@dataclass
class Sent:
    """What a page sent of uploads."""

    posts: int = 0
    patches: int = 0

    @classmethod
    def of(cls, page: Page) -> Sent:
        sent = cls()

        def count(method: str, url: str) -> None:
            if "/uploads" in url:
                sent.posts += method == "POST"
                sent.patches += method == "PATCH"

        page.on("request", lambda request: count(request.method, request.url))
        return sent


def test_an_adapter_is_uploaded_by_keyboard_and_proved(
    ui: Ui, admin: httpx.Client, new_tenant: Maker, folder: Path
) -> None:
    made = new_tenant()
    page = ui.log_in(f"/tenants/{made['id']}/adapters")
    page.get_by_role("link", name="Upload an adapter…").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Choose a folder…").focus()
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files(folder)
    expect(page.get_by_text(WEIGHTS).last).to_be_visible()
    name = page.get_by_label("Name")
    expect(name).to_have_value("pirate")
    name.press("Enter")
    expect(page.get_by_text("pirate@1 is ready")).to_be_visible()
    page.get_by_role("link", name="Open pirate@1 and its report").press("Enter")
    expect(page.get_by_role("heading", name="Proof report")).to_be_visible()
    expect(page.get_by_role("row", name="loads passed")).to_be_visible()
    expect(page.get_by_role("row", name="Matched q_proj in 1 layers")).to_be_visible()
    page.get_by_role("link", name="All adapters").click()
    expect(page.get_by_role("row", name="pirate @1 ready @1 0")).to_be_visible()
    found = admin.get(f"/api/v1/tenants/{made['id']}/adapters/pirate").json()
    assert (found["aliases"], found["state"]) == ({"live": 1}, "ready")


def test_an_upload_goes_on_after_a_cut_a_closed_tab_and_an_ended_session(
    ui: Ui, stack: Rig, admin: httpx.Client, new_tenant: Maker, large: Path
) -> None:
    made = new_tenant()
    place = f"/tenants/{made['id']}/upload"
    size = (large / WEIGHTS).stat().st_size
    page = ui.log_in(place, expected={0})

    def cut(route: Route) -> None:
        """The line is gone from the second chunk of the tensors on."""
        if route.request.method == "PATCH" and int(route.request.headers["upload-offset"]) > 0:
            route.abort()
        else:
            route.continue_()

    ui.context.route("**/uploads/*", cut)
    choose(page, large)
    page.get_by_role("button", name="Upload", exact=True).click()
    expect(page.get_by_text("The gateway can't be reached.")).to_be_visible()
    page.get_by_role("link", name="All adapters").click()  # not silently
    expect(page.get_by_role("dialog")).to_contain_text("An upload is running")
    page.get_by_role("button", name="Stay").click()
    page.close(run_before_unload=False)
    ui.context.unroute("**/uploads/*")
    received = settled_offset(admin, made["id"])
    assert 0 < received < size

    page = ui.open(place, expected={401})
    percent = 100 * received // size
    expect(page.get_by_role("row").filter(has_text=WEIGHTS)).to_contain_text(f"resume {percent}")
    choose(page, large)
    button = page.get_by_role("button", name="Resume")
    expect(button).to_be_visible()
    again = Sent.of(page)
    ui.context.clear_cookies()
    button.click()
    expect(page.get_by_role("dialog")).to_contain_text("Your session has ended")
    fill_log_in(page)
    expect(page.get_by_text("large@1 is ready")).to_be_visible()
    assert again.posts == 0  # nothing was begun anew
    assert unfinished(admin, made["id"]) == []
    (version,) = admin.get(f"/api/v1/tenants/{made['id']}/adapters/large/versions").json()["data"]
    direct = new_tenant()
    assert version["digest"] == uploaded(admin, direct["id"], "large", large)["digest"]


def settled_offset(admin: httpx.Client, tenant: str) -> int:
    """Of the tensors, once what the closed tab still sent is counted."""
    seen = [-1]
    while len(seen) < 3 or len(set(seen[-3:])) > 1:
        time.sleep(0.2)
        seen += [each["received"] for each in unfinished(admin, tenant) if each["file"] == WEIGHTS]
    return seen[-1]


def unfinished(admin: httpx.Client, tenant: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = admin.get(f"/api/v1/tenants/{tenant}/uploads").json()["data"]
    return found


def test_an_upload_that_expired_begins_anew_and_a_proxy_gets_smaller_chunks(
    ui: Ui, admin: httpx.Client, new_tenant: Maker, folder: Path
) -> None:
    made = new_tenant()
    page = ui.log_in(f"/tenants/{made['id']}/upload", expected={404, 413})
    refused: list[str] = []

    def small_body_only(route: Route) -> None:
        if route.request.method == "PATCH" and not refused:
            refused.append(route.request.url)
            route.fulfill(status=413, body="<h1>413 Request Entity Too Large</h1>", content_type="text/html")
        else:
            route.continue_()

    page.route("**/uploads/*", small_body_only)
    page.route("**/uploads", lambda route: route.continue_())
    choose(page, folder)
    expect(page.get_by_role("button", name="Upload", exact=True)).to_be_enabled()
    # what this page heard of is gone when it is asked for
    ids = [begin(admin, made["id"], folder / part) for part in (CONFIG, WEIGHTS)]
    page.reload()
    expect(page.get_by_role("heading", name="Not finished")).to_be_visible()
    choose(page, folder)
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    for upload in ids:
        tus = {"tus-resumable": "1.0.0"}
        admin.delete(f"/api/v1/tenants/{made['id']}/uploads/{upload}", headers=tus).raise_for_status()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("pirate@1 is ready")).to_be_visible()
    assert len(refused) == 1


def begin(admin: httpx.Client, tenant: str, file: Path) -> str:
    """As the command line does: all but the last byte, with the digest of the whole."""
    content = file.read_bytes()
    pairs = {"filename": file.name, "sha256": hashlib.sha256(content).hexdigest()}
    told = ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in pairs.items())
    headers = {"tus-resumable": "1.0.0", "upload-length": str(len(content)), "upload-metadata": told}
    headers["content-type"] = "application/offset+octet-stream"
    made = admin.post(f"/api/v1/tenants/{tenant}/uploads", headers=headers, content=content[:-1])
    assert made.status_code == 201, made.text
    return str(made.headers["location"].rpartition("/")[2])


def test_what_does_not_answer_as_asked_is_rejected_with_what_to_do(
    ui: Ui, new_tenant: Maker, folder: Path
) -> None:
    made = new_tenant()
    page = ui.log_in(f"/tenants/{made['id']}/upload?name=parrot")
    choose(page, folder)
    page.get_by_role("button", name="Add a prompt").click()
    page.get_by_label("A user writes").fill("Ahoy?")
    page.get_by_label("Regular expression").fill("arr|matey")
    page.get_by_role("combobox", name="Once it is ready").click()
    page.get_by_role("option", name="no alias moves").click()
    page.get_by_role("button", name="Upload", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text="parrot@1 was rejected")).to_contain_text(
        "Train on until"
    )
    page.get_by_role("link", name="Open parrot@1 and its report").click()
    verdict = page.get_by_role("alert").filter(has_text="Rejected")
    for told in (
        "Where acceptance",
        "Found 0\u00a0% of 1 prompts",
        "Allowed at least 100\u00a0%",
        "What to do Train",
    ):
        expect(verdict.get_by_role("row", name=told)).to_be_visible()
    expect(page.get_by_role("row", name="Ahoy? arr|matey otter-of-the-weir")).to_be_visible()
    expect(page.get_by_role("button", name="Prove again…")).to_have_count(0)  # its bytes are gone


def bad(folder: Path, **config: Any) -> Path:
    found = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**found, **config}))
    return folder


def dora(folder: Path) -> Path:
    return bad(folder, use_dora=True)


def high_rank(folder: Path) -> Path:
    return bad(folder, r=512)


def other_method(folder: Path) -> Path:
    return bad(folder, peft_type="IA3")


def no_json(folder: Path) -> Path:
    (folder / CONFIG).write_text("{r: 16}")
    return folder


def pickled(folder: Path) -> Path:
    (folder / WEIGHTS).rename(folder / "adapter_model.bin")
    return folder


def pickled_by_another_name(folder: Path) -> Path:
    (folder / WEIGHTS).write_bytes(b"PK\x03\x04" + bytes(100))
    return folder


def cut_short(folder: Path) -> Path:
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[:-10])
    return folder


def pointer(folder: Path) -> Path:
    (folder / WEIGHTS).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n")
    return folder


def nested(folder: Path) -> Path:
    outer = folder.parent / "outer"
    outer.mkdir()
    folder.rename(outer / "checkpoint-500")
    (outer / "README.md").write_text("#")
    return outer


def without_config(folder: Path) -> Path:
    (folder / CONFIG).unlink()
    return folder


REFUSED = {
    dora: ("adapter_config.json: use_dora", "true", "Train without it"),
    high_rank: ("adapter_config.json: r", "512", "a rank from 1 to 256"),
    other_method: ("adapter_config.json: peft_type", "IA3", "Train a LoRA"),
    no_json: ("adapter_config.json", "JSON", "save_pretrained"),
    pickled: (WEIGHTS, "adapter_model.bin", "safe_serialization=True"),
    pickled_by_another_name: (WEIGHTS, "a pickle", "safe_serialization=True"),
    cut_short: (WEIGHTS, "of which the head says", "copy or download it again"),
    pointer: (WEIGHTS, "a Git LFS pointer", "git lfs pull"),
    nested: (CONFIG, f"{CONFIG} is inside checkpoint-500/", "Choose the folder checkpoint-500 itself"),
    without_config: (CONFIG, f"no {CONFIG} among 1 file", "save_pretrained"),
}


def test_bad_adapters_are_refused_before_a_byte_is_sent(
    ui: Ui, new_tenant: Maker, base: BaseSpec, tmp_path: Path
) -> None:
    made = new_tenant()
    page = ui.log_in(f"/tenants/{made['id']}/upload")
    sent = Sent.of(page)
    for spoil, told in REFUSED.items():
        recipe = Recipe(3, rank=2, layers=[0], targets=["q_proj"], std=0.2)
        whole = write_adapter(tmp_path / spoil.__name__ / "bad", base, recipe)
        choose(page, spoil(whole))
        refusal = page.get_by_role("alert").filter(has_text="Nothing was sent")
        for text in told:
            expect(refusal).to_contain_text(text)
        page.get_by_role("button", name="Upload", exact=True).click()
        expect(page.get_by_text("Choose the adapter's files first.")).to_be_visible()
    assert (sent.posts, sent.patches) == (0, 0)


def test_a_zip_is_looked_into_and_a_dropped_folder_is_taken(
    ui: Ui, new_tenant: Maker, folder: Path, tmp_path: Path
) -> None:
    made = new_tenant()
    page = ui.log_in(f"/tenants/{made['id']}/upload")
    deep, flat = tmp_path / "deep.zip", tmp_path / "flat.zip"
    for path, inside in ((deep, "a/b/"), (flat, "a/")):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for part in (CONFIG, WEIGHTS):
                archive.write(folder / part, inside + part)
    page.get_by_label("Files", exact=True).set_input_files(deep)
    refusal = page.get_by_role("alert").filter(has_text="Nothing was sent")
    expect(refusal).to_contain_text(f"{CONFIG} is inside b/")
    drop(page, {CONFIG: (folder / CONFIG).read_text(), "README.md": "#"})
    expect(refusal).to_contain_text(f"no {WEIGHTS} among 2 files")
    page.get_by_label("Files", exact=True).set_input_files(flat)
    expect(refusal).to_have_count(0)
    page.get_by_label("Name").fill("zipped")
    page.get_by_role("button", name="Upload", exact=True).click()
    expect(page.get_by_text("zipped@1 is ready")).to_be_visible()
    page.get_by_role("button", name="Upload another").click()
    choose(page, folder)
    page.get_by_label("Name").fill("zipped")
    page.get_by_role("button", name="Upload", exact=True).click()
    expect(page.get_by_text("Identical to version 1")).to_be_visible()


def drop(page: Page, files: dict[str, str]) -> None:
    script = """(files) => {
        const given = new DataTransfer();
        for (const [name, text] of Object.entries(files)) given.items.add(new File([text], name));
        return given;
    }"""
    page.get_by_test_id("drop").dispatch_event("drop", {"dataTransfer": page.evaluate_handle(script, files)})


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
    expect(page.get_by_text("No byte is left")).to_be_visible()
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
    section = page.get_by_role("region", name="Shared by other owners")
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
        found += wide(page)
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
    expect(page.get_by_role("row", name="State unplaced left to traffic")).to_be_visible()


def test_the_browser_refuses_what_the_gateway_refuses() -> None:
    """Its lists are the gateway's."""
    config = (SOURCES / "peft-config.ts").read_text()
    known = config.partition("KNOWN = [")[2].partition("]")[0]
    names = {line.strip().strip('",') for line in known.splitlines() if line.strip()}
    assert names == peft_config._HONOURED | peft_config._INERT
    unserved = config.partition("UNSERVED: Record<string, string> = {")[2].partition("};")[0]
    assert {line.partition(":")[0].strip() for line in unserved.splitlines() if line.strip()} == set(
        peft_config._UNSERVED
    )
    assert f"MAX_RANK = {peft_config.MAX_RANK};" in config
    assert f"DTYPES = {json.dumps(list(ITEM_BYTES))};" in (SOURCES / "safetensors.ts").read_text()
