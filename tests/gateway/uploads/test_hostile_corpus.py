"""Tampered, hostile and odd inputs through the whole gateway: each is a typed refusal, nothing of it is left
on the spool or in the store, and memory stays where it was."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

import httpx
import psutil
import pytest

from adapters import safetensors_header
from gateway.catalog.parts import CONFIG_PART, WEIGHTS_PART
from tests.adapters.damage import (
    A0,
    B0,
    add,
    config,
    doubled_header,
    entry,
    file,
    header,
    rank_of_q0,
    raw_config,
    remove,
    shape,
    shift,
    torch_zip,
)
from tests.adapters.uploads import Upload, upload
from tests.gateway.uploads import hostile_zips as zips
from tests.gateway.uploads.conftest import TUS, Bench, Files, multipart

MOST_GROWTH = 384 * 1024 * 1024
"""Of this process, which holds both ends: bodies of up to 50 MiB, some of them several times."""


def zero(bad: Upload) -> None:
    for name, blob in bad.tensors.items():
        if "lora_B" in name:
            blob.data = bytes(len(blob.data))


def not_a_number(bad: Upload) -> None:
    bad.tensors[A0].data = b"\xc0\x7f" + bad.tensors[A0].data[2:]


DAMAGED: dict[str, tuple[Callable[[Upload], None], str]] = {
    "config not JSON": (raw_config(b"r = 8"), "config_malformed"),
    "config nested without end": (raw_config(b'{"a":' * 40_000), "config_malformed"),
    "config with a key twice": (raw_config(b'{"r": 8, "r": 16}'), "config_malformed"),
    "config with a field of nobody's": (config(exec="rm -rf /"), "unknown_field"),
    "DoRA": (config(use_dora=True), "unsupported_feature"),
    "a pattern that explodes": (config(target_modules="((a{1,900}){1,900}){1,900}"), "unsafe_pattern"),
    "a pickle": (file(lambda _: pickle.dumps({"a": 1})), "not_safetensors"),
    "a torch zip": (file(torch_zip), "not_safetensors"),
    "a header of two gigabytes": (
        file(lambda raw: (2 << 30).to_bytes(8, "little") + raw),
        "header_malformed",
    ),
    "a header over its cap": (
        file(lambda _: (2**24 + 1).to_bytes(8, "little") + b"{" + b" " * 2**24),
        "header_malformed",
    ),
    "a header with a tensor twice": (file(doubled_header), "header_malformed"),
    "too many tensors": (
        header(lambda h: h.update({f"t{i}": h[A0] for i in range(safetensors_header.MAX_TENSORS)})),
        "header_malformed",
    ),
    "offsets that overlap": (header(shift(B0, -16)), "bad_offsets"),
    "a dtype of nobody's": (header(entry(A0, dtype="F8_E4M3")), "bad_dtype"),
    "shapes of another base": (shape(A0, (4, 32)), "base_mismatch"),
    "a rank without end": (rank_of_q0(4096), "rank_out_of_range"),
    "half a pair": (remove(B0), "missing_pair"),
    "a tensor of nobody's": (add("lm_head.weight"), "unknown_tensor"),
    "a value that is no number": (not_a_number, "not_finite"),
    "no effect": (zero, "no_effect"),
}

ZIPS: dict[str, tuple[Callable[[zips.Files], bytes], int, str]] = {
    "zip-slip": (zips.entry("../../adapter_config.json"), 422, "zip_unknown_entry"),
    "an absolute name": (zips.entry("/etc/passwd"), 422, "zip_unknown_entry"),
    "backslashes": (zips.entry("..\\..\\adapter_config.json"), 422, "zip_unknown_entry"),
    "a NUL in a name": (zips.nul_in_a_name, 422, "zip_unknown_entry"),
    "another file": (zips.entry("run.py"), 422, "zip_unknown_entry"),
    "a folder in a folder": (zips.folder("a/b/", "a/b/"), 422, "zip_unknown_entry"),
    "two folders": (zips.folder("a/", "b/"), 422, "zip_unknown_entry"),
    "a file twice": (zips.twice, 422, "zip_duplicate_entry"),
    "a link": (zips.LINK, 422, "zip_not_a_file"),
    "a device": (zips.DEVICE, 422, "zip_not_a_file"),
    "an encrypted entry": (zips.ENCRYPTED, 422, "zip_encrypted"),
    "another method": (lambda files: zips.zipped(files, 12), 422, "zip_method"),
    "a bomb": (zips.bomb, 413, "request_too_large"),
    "a bomb that lies": (zips.lying_bomb, 422, "zip_size_mismatch"),
    "a size of zip64 that lies": (zips.zip64_lie, 413, "request_too_large"),
    "a size that is too small": (zips.SHORT, 422, "zip_size_mismatch"),
    "a wrong checksum": (zips.WRONG_CHECKSUM, 422, "zip_size_mismatch"),
    "another name inside": (zips.other_name_inside, 422, "zip_size_mismatch"),
    "entries that share bytes": (zips.shared_bytes, 422, "zip_malformed"),
    "an entry beyond the end": (zips.BEYOND_THE_END, 422, "zip_size_mismatch"),
    "a list of four gigabytes": (zips.long_list, 422, "zip_malformed"),
    "thousands of entries": (zips.many_entries, 422, "zip_malformed"),
    "a zip that was cut": (zips.cut, 422, "zip_malformed"),
    "no zip": (lambda _: b"hello, world", 422, "zip_malformed"),
    "an empty zip": (lambda _: zips.zipped({}), 400, "missing_required_parameter"),
    "a zip without tensors": (
        lambda files: zips.zipped({CONFIG_PART: files[CONFIG_PART]}),
        400,
        "missing_required_parameter",
    ),
}

BODIES: dict[str, tuple[bytes, str, int, str]] = {
    "no tensors": (multipart((CONFIG_PART, b"{}")), "", 400, "missing_required_parameter"),
    "the config twice": (
        multipart((CONFIG_PART, b"{}"), (CONFIG_PART, b"{}")),
        "",
        400,
        "duplicate_parameter",
    ),
    "a part named as a path": (multipart(("../../x", b"x")), "", 400, "unknown_parameter"),
    "a config without end": (multipart((CONFIG_PART, b" " * 300_000)), "", 413, "request_too_large"),
    "a body that was cut": (multipart((CONFIG_PART, b"{}"))[:-9], "", 400, "invalid_multipart"),
    "a part with a long head": (multipart((CONFIG_PART + "a" * 5_000, b"")), "", 400, "invalid_multipart"),
    "no boundary": (b"", "multipart/form-data", 400, "invalid_multipart"),
    "another kind of body": (b"hello", "text/plain", 415, "unsupported_media_type"),
    "JSON that is none": (b"{", "application/json", 400, "*"),
    "JSON of nothing": (b"{}", "application/json", 400, "invalid_value"),
    "JSON nested without end": (b'{"uploads":' + b"[" * 8_000, "application/json", 400, "*"),
    "JSON without end": (b" " * 20_000, "application/json", 413, "request_too_large"),
    "an unknown field": (b'{"path": "/etc"}', "application/json", 400, "unknown_parameter"),
    "ids that are none": (b'{"uploads": ["../../x"]}', "application/json", 400, "invalid_value"),
    "too many ids": (
        json.dumps({"uploads": [str(uuid4()) for _ in range(4)]}).encode(),
        "application/json",
        400,
        "array_above_max_length",
    ),
    "an upload of nobody's": (
        json.dumps({"uploads": [str(uuid4())]}).encode(),
        "application/json",
        404,
        "upload_not_found",
    ),
}

SOURCES: dict[str, tuple[dict[str, str], int, str]] = {
    "a file": ({"url": "file:///etc/"}, 403, "import_not_allowed"),
    "a host that is not allowed": ({"url": "https://example.com/ok/"}, 403, "import_not_allowed"),
    "a path beside the allowed": ({"url": "{web}/other/"}, 403, "import_not_allowed"),
    "a path that climbs": ({"url": "{web}/ok/../other/"}, 403, "import_not_allowed"),
    "a path that climbs in disguise": ({"url": "{web}/ok/%2e%2e/other/"}, 403, "import_not_allowed"),
    "a name and a password": ({"url": "http://a:b@127.0.0.1/ok/"}, 403, "import_not_allowed"),
    "the allowed host's name before another": ({"url": "{web}.evil.example/ok/"}, 403, "import_not_allowed"),
    "an address inside": ({"url": "https://127.0.0.2/ok/"}, 403, "import_not_allowed"),
    "a query": ({"url": "{web}/ok/?x=1"}, 400, "invalid_value"),
    "a redirect to what is not allowed": ({"url": "{web}/ok/away/"}, 403, "import_not_allowed"),
    "redirects in a ring": ({"url": "{web}/ok/ring/"}, 422, "source_failed"),
    "a config without end": ({"url": "{web}/ok/long/"}, 413, "request_too_large"),
    "what is not there": ({"url": "{web}/ok/nothing/"}, 422, "source_failed"),
    "another tenant's prefix": ({"s3": f"s3://motet-tests/in/{uuid4()}/a/"}, 403, "import_not_allowed"),
    "another bucket": ({"s3": "s3://secrets/in/"}, 403, "import_not_allowed"),
    "a prefix that climbs": ({"s3": "s3://motet-tests/in/../secrets/"}, 400, "invalid_value"),
    "an endpoint of one's own": (
        {"s3": "s3://motet-tests/in/?endpoint=http://169.254.169.254"},
        400,
        "invalid_value",
    ),
    "two sources": ({"s3": "s3://a/b/", "url": "{web}/ok/"}, 400, "invalid_value"),
}


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Sampled while the block runs."""
    process, done = psutil.Process(), threading.Event()
    before = peak = process.memory_info().rss

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    assert peak - before < MOST_GROWTH, f"{(peak - before) >> 20} MiB more"


def refused(bench: Bench, case: str, answer: httpx.Response, status: int, code: str) -> None:
    assert answer.status_code == status, (case, answer.status_code, answer.text)
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error", case
    assert code in ("*", error["code"]), (case, error)
    assert error["message"], case
    assert bench.kept() == [], case
    assert bench.request("GET", "/v1/uploads").json()["data"] == [], case


@pytest.fixture
def emptied(bench: Bench) -> Bench:
    """Files of other tests' open uploads, which lie in the same folder, are theirs."""
    for path in (bench.home / "uploads" / "open").glob("*"):
        path.unlink()
    for path in (bench.home / "store").rglob("*.motet"):
        path.unlink()
    return bench


def test_the_corpus_is_large_enough() -> None:
    assert len(DAMAGED) + len(ZIPS) + len(BODIES) + len(SOURCES) >= 80


def test_damaged_files_are_refused(emptied: Bench) -> None:
    with bounded_memory():
        for number, (case, (damage, code)) in enumerate(DAMAGED.items()):
            bad = upload()
            damage(bad)
            parts = (CONFIG_PART, bad.config_bytes()), (WEIGHTS_PART, bad.weights_bytes())
            if number % 4:
                answer = emptied.post("bad", multipart(*parts))
            else:
                answer = emptied.version("bad", uploads=[emptied.sent(*part) for part in parts])
            refused(emptied, case, answer, 422, code)


def test_hostile_zips_are_refused(emptied: Bench, files: dict[str, bytes]) -> None:
    with bounded_memory():
        for case, (make, status, code) in ZIPS.items():
            sent = emptied.sent("adapter.zip", make(files))
            refused(emptied, case, emptied.version("bad", uploads=[sent]), status, code)


def test_bodies_that_ask_for_nothing_that_could_be_are_refused(emptied: Bench) -> None:
    with bounded_memory():
        for case, (body, kind, status, code) in BODIES.items():
            answer = emptied.post("bad", body, kind) if kind else emptied.post("bad", body)
            refused(emptied, case, answer, status, code)


def test_sources_that_are_not_allowed_or_lie_are_refused(emptied: Bench, web: Files) -> None:
    web.by_path[f"/ok/away/{CONFIG_PART}"] = "http://169.254.169.254/latest/meta-data/"
    web.by_path[f"/ok/ring/{CONFIG_PART}"] = f"/ok/ring/{CONFIG_PART}"
    web.by_path[f"/ok/long/{CONFIG_PART}"] = bytes(300_000)
    with bounded_memory():
        for case, (source, status, code) in SOURCES.items():
            named = {kind: text.replace("{web}", web.url) for kind, text in source.items()}
            refused(emptied, case, emptied.version("bad", source=named), status, code)


def test_uploads_that_make_no_adapter_are_refused_and_stay(emptied: Bench, files: dict[str, bytes]) -> None:
    """What is wrong is the request: nothing that was uploaded is lost by it."""
    half = emptied.begin(WEIGHTS_PART, len(files[WEIGHTS_PART]))
    whole = emptied.sent(CONFIG_PART, files[CONFIG_PART])
    zipped = emptied.sent("a.zip", zips.zipped(files))
    cases = [
        ([whole, half.rpartition("/")[2]], 409, "upload_unfinished"),
        ([whole], 400, "missing_required_parameter"),
        ([whole, whole], 400, "duplicate_parameter"),
        ([whole, emptied.sent(CONFIG_PART, b"{}")], 400, "duplicate_parameter"),
        ([whole, zipped], 400, "invalid_value"),
    ]
    for ids, status, code in cases:
        answer = emptied.version("bad", uploads=ids)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    assert len(emptied.request("GET", "/v1/uploads").json()["data"]) == 4
    for each in emptied.request("GET", "/v1/uploads").json()["data"]:
        assert emptied.request("DELETE", f"/v1/uploads/{each['id']}", headers=TUS).status_code == 204
    assert emptied.kept() == []
