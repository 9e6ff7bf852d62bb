"""Uploads in the browser: judged first, sent so that they resume, proved, and by keyboard."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Page, Route, expect

from adapters import peft_config
from adapters.base import BaseSpec
from adapters.safetensors_header import ITEM_BYTES
from deploy.bench.random_adapters import Recipe, write_adapter
from tests.admin_ui.bringing import CONFIG, WEIGHTS, Maker, choose, uploaded
from tests.admin_ui.conftest import Ui, fill_log_in
from tests.admin_ui.spoiled import REFUSED
from tests.admin_ui.test_keys import HOSTILE

WAIT_S = 60
SLOW = 3 * 1024 * 1024  # bytes a second
SOURCES = Path(__file__).resolve().parents[2] / "admin_ui" / "src" / "uploading"


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


class Line:
    """Between a page and the gateway: slow, so that it is cut in the middle, or gone."""

    def __init__(self, page: Page) -> None:
        self._cdp = page.context.new_cdp_session(page)

    def set(self, *, offline: bool) -> None:
        wanted = {"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": SLOW}
        self._cdp.send("Network.emulateNetworkConditions", wanted)


def wait_for_bytes(admin: httpx.Client, tenant: str) -> None:
    until = time.monotonic() + WAIT_S
    while not [each for each in unfinished(admin, tenant) if each["file"] == WEIGHTS and each["received"]]:
        assert time.monotonic() < until, "nothing came"
        time.sleep(0.1)


def settled_offset(admin: httpx.Client, tenant: str) -> int:
    """Of the tensors, once what the closed tab still sent is counted."""
    seen, until = [-1], time.monotonic() + WAIT_S
    while len(seen) < 3 or len(set(seen[-3:])) > 1:
        assert time.monotonic() < until, seen
        time.sleep(0.2)
        seen += [each["received"] for each in unfinished(admin, tenant) if each["file"] == WEIGHTS]
    return seen[-1]


def unfinished(admin: httpx.Client, tenant: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = admin.get(f"/api/v1/tenants/{tenant}/uploads").json()["data"]
    return found


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


def drop(page: Page, files: dict[str, str]) -> None:
    script = """(files) => {
        const given = new DataTransfer();
        for (const [name, text] of Object.entries(files)) given.items.add(new File([text], name));
        return given;
    }"""
    page.get_by_test_id("drop").dispatch_event("drop", {"dataTransfer": page.evaluate_handle(script, files)})


def test_an_adapter_is_uploaded_by_keyboard_and_proved(
    ui: Ui, admin: httpx.Client, new_tenant: Maker, folder: Path
) -> None:
    made = new_tenant()
    page = ui.log_in(f"/tenants/{made['id']}/adapters")
    page.get_by_role("link", name="Upload an adapter…").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Upload an adapter")).to_be_visible()
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose a folder…").press("Enter")
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
    ui: Ui, admin: httpx.Client, new_tenant: Maker, large: Path
) -> None:
    made = new_tenant()
    place = f"/tenants/{made['id']}/upload"
    size = (large / WEIGHTS).stat().st_size
    page = ui.log_in(place, expected={0})
    line = Line(page)
    line.set(offline=False)
    choose(page, large)
    page.get_by_role("button", name="Upload", exact=True).click()
    wait_for_bytes(admin, made["id"])
    line.set(offline=True)
    expect(page.get_by_text("The gateway can't be reached.")).to_be_visible()
    page.get_by_role("link", name="All adapters").click()  # not silently
    expect(page.get_by_role("dialog")).to_contain_text("An upload is running")
    page.get_by_role("button", name="Stay").click()
    line.set(offline=False)
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").click()
    line.set(offline=True)
    page.close(run_before_unload=False)
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


def test_what_does_not_answer_as_asked_is_rejected_with_what_to_do(
    ui: Ui, new_tenant: Maker, folder: Path
) -> None:
    made = new_tenant()
    page = ui.log_in(f"/tenants/{made['id']}/upload?name=parrot")
    choose(page, folder)
    page.get_by_role("button", name="Add a prompt").click()
    page.get_by_label("A user writes").fill(f"Ahoy? {HOSTILE}")
    page.get_by_label("Regular expression").fill("arr|matey")
    page.get_by_role("combobox", name="Once it is ready").click()
    page.get_by_role("option", name="no alias moves").click()
    page.get_by_role("button", name="Upload", exact=True).click()
    rejected = page.get_by_role("alert").filter(has_text="parrot@1 was rejected")
    expect(rejected).to_contain_text("Train on until", timeout=60_000)  # it answers 256 tokens first
    page.get_by_role("link", name="Open parrot@1 and its report").click()
    verdict = page.get_by_role("alert").filter(has_text="Rejected")
    for told in (
        "Where acceptance",
        "Found 0.?% of 1 prompts",
        "Allowed at least 100.?%",
        "What to do Train",
    ):
        expect(verdict.get_by_role("row", name=re.compile(told))).to_be_visible()
    answers = page.get_by_role("table", name="Answers to acceptance prompts")
    expect(answers.get_by_text(f"Ahoy? {HOSTILE}")).to_be_visible()  # as text
    expect(answers.get_by_role("row").filter(has_text="arr|matey")).to_contain_text("otter-of-the-weir")
    assert page.evaluate("window.pwned") is None
    expect(page.get_by_role("button", name="Prove again…")).to_have_count(0)  # its bytes are gone


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


def test_what_the_gateway_refuses_is_told_like_it(ui: Ui, new_tenant: Maker, folder: Path) -> None:
    made = new_tenant()
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[-2:] = b"\xc0\x7f"  # a NaN in bf16
    (folder / WEIGHTS).write_bytes(content)
    page = ui.log_in(f"/tenants/{made['id']}/upload", expected={422})
    choose(page, folder)
    page.get_by_role("button", name="Upload", exact=True).click()
    refusal = page.get_by_role("alert").filter(has_text="The gateway refused it")
    for told in (f"Where {WEIGHTS}", "Allowed numbers only", "What to do Training diverged"):
        expect(refusal.get_by_role("row", name=told)).to_be_visible()
    expect(page.get_by_role("heading", name="Not finished")).to_have_count(0)  # it keeps nothing of them


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
