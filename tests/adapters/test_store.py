"""One contract, held by the folder and by a real S3 server."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from adapters.store import (
    Denied,
    InvalidPath,
    NotFound,
    ObjectStore,
    StoreError,
    Unavailable,
    artefact_of,
    artefact_path,
    check_path,
    open_store,
)
from tests.adapters.conftest import S3Server, free_ports

OWNER = "0190a1b2-0000-7000-8000-000000000001"
ARTEFACT = "ab" * 32
PATH = artefact_path(OWNER, ARTEFACT)


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return open_store(f"file://{tmp_path / 'store'}")
    server: S3Server = request.getfixturevalue("s3_credentials")
    return open_store(server.url(f"run-{tmp_path.name}"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"the bytes")
    return path


def test_what_is_put_is_fetched(store: ObjectStore, source: Path, tmp_path: Path) -> None:
    store.put_file(source, PATH)
    target = tmp_path / "new" / "folder" / "target"
    store.fetch_file(PATH, target)
    assert target.read_bytes() == b"the bytes"
    assert store.size(PATH) == 9
    assert store.exists(PATH)


def test_objects_of_several_parts(store: ObjectStore, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(os.urandom(20 * 1024 * 1024 + 17))
    store.put_file(big, PATH)
    store.fetch_file(PATH, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == big.read_bytes()


def test_an_empty_object(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    store.put_file(tmp_path / "empty", "a/empty")
    store.fetch_file("a/empty", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b""


def test_a_put_replaces(store: ObjectStore, source: Path, tmp_path: Path) -> None:
    store.put_file(source, PATH)
    source.write_bytes(b"newer")
    store.put_file(source, PATH)
    store.fetch_file(PATH, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"newer"


def test_what_is_not_there(store: ObjectStore, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"as it was")
    assert not store.exists(PATH)
    for ask in (lambda: store.size(PATH), lambda: store.age_s(PATH), lambda: store.fetch_file(PATH, target)):
        with pytest.raises(NotFound):
            ask()
    store.delete(PATH)
    assert target.read_bytes() == b"as it was"
    assert list(store.list("tenants")) == []
    assert [file.name for file in tmp_path.iterdir() if file.suffix == ".tmp"] == []


def test_a_source_that_is_not_there(store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        store.put_file(tmp_path / "nothing", PATH)
    assert not store.exists(PATH)


def test_an_objects_age_counts_from_its_put(store: ObjectStore, source: Path) -> None:
    store.put_file(source, PATH)
    assert -2 < store.age_s(PATH) < 30  # a server's clock may tick in whole seconds


def test_the_artefact_behind_a_path() -> None:
    assert artefact_of(artefact_path("acme", "1" * 64)) == ("acme", "1" * 64)
    for other in (
        "a/b",
        "tenants/acme/artefacts/" + "1" * 64,
        f"tenants/acme/artefacts/{'1' * 63}/v1/adapter.motet",
        f"tenants/acme/artefacts/{'1' * 64}/v2/adapter.motet",
        f"tenants/acme/artefacts/{'1' * 64}/v1/adapter.motet.new",
        f"backup/tenants/acme/artefacts/{'1' * 64}/v1/adapter.motet",
    ):
        assert artefact_of(other) is None


def test_delete_and_list(store: ObjectStore, source: Path) -> None:
    paths = [artefact_path(owner, digit * 64) for owner in ("acme", "globex", "acme2") for digit in "12"]
    for path in paths:
        store.put_file(source, path)
    assert sorted(store.list("")) == sorted(paths)
    assert sorted(store.list("tenants/acme")) == sorted(paths[:2])
    assert sorted(store.list("tenants/acme/")) == sorted(paths[:2])
    store.delete(paths[0])
    assert not store.exists(paths[0])
    assert sorted(store.list("tenants/acme")) == [paths[1]]


def test_readers_see_whole_objects_while_one_writes(store: ObjectStore, tmp_path: Path) -> None:
    contents = [bytes([digit]) * 300_000 for digit in b"ab"]
    for name, content in zip("ab", contents, strict=True):
        (tmp_path / name).write_bytes(content)
    store.put_file(tmp_path / "a", PATH)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            store.put_file(tmp_path / "b", PATH)
            store.put_file(tmp_path / "a", PATH)

    writer = threading.Thread(target=write)
    writer.start()
    read = 0
    try:
        while read < 12:
            try:
                store.fetch_file(PATH, tmp_path / "back")
            except Unavailable:  # S3: replaced between the look and the read, and said so
                continue
            assert (tmp_path / "back").read_bytes() in contents
            read += 1
    finally:
        stop.set()
        writer.join()


@pytest.mark.parametrize(
    "path",
    [
        *("../x", "a/../b", "/etc/passwd", "a//b", "", ".", "a/.", ".hidden", "a/./b", "a/", "-rf"),
        *("a\\b", "a b", "a\nb", "a\0b", "é", "a" * 600, "/".join("a" * 40), "a/" + "b" * 200),
    ],
)
def test_paths_that_could_escape(tmp_path: Path, source: Path, path: str) -> None:
    refuses_everywhere(open_store(f"file://{tmp_path / 'store'}"), source, path)


def test_s3_refuses_them_too(s3_credentials: S3Server, source: Path) -> None:
    refuses_everywhere(open_store(s3_credentials.url()), source, "../x")


def refuses_everywhere(store: ObjectStore, source: Path, path: str) -> None:
    with pytest.raises(InvalidPath):
        check_path(path)
    for ask in (
        lambda: store.put_file(source, path),
        lambda: store.fetch_file(path, source),
        lambda: store.exists(path),
        lambda: store.size(path),
        lambda: store.delete(path),
    ):
        with pytest.raises(InvalidPath):
            ask()
    assert source.read_bytes() == b"the bytes"


@pytest.mark.parametrize(
    ("owner", "artefact"),
    [
        ("..", ARTEFACT),
        ("a/b", ARTEFACT),
        ("", ARTEFACT),
        ("a" * 65, ARTEFACT),
        ("acme", "AB" * 32),
        ("acme", "../x"),
    ],
)
def test_ids_that_are_none(owner: str, artefact: str) -> None:
    with pytest.raises(InvalidPath):
        artefact_path(owner, artefact)


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path, source: Path) -> None:
    store = open_store(f"file://{tmp_path / 'store'}")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "out").symlink_to(tmp_path)
    with pytest.raises(NotFound):
        store.fetch_file("out/source", tmp_path / "back")


def test_a_folder_that_may_not_be_written(tmp_path: Path, source: Path) -> None:
    (tmp_path / "file").touch()
    store = open_store(f"file://{tmp_path / 'file'}")
    with pytest.raises(StoreError):
        store.put_file(source, PATH)


def test_wrong_credentials_are_denied(
    s3_credentials: S3Server, monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    store = open_store(s3_credentials.url())
    for ask in (
        lambda: store.put_file(source, PATH),
        lambda: store.fetch_file(PATH, tmp_path / "back"),
        lambda: store.exists(PATH),
        lambda: list(store.list("")),
        lambda: store.delete(PATH),
    ):
        with pytest.raises(Denied):
            ask()


def test_no_credentials_are_denied(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Denied):
        open_store(s3_server.url()).put_file(source, PATH)


def test_a_server_that_is_gone_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, source: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    store = open_store(f"s3://bucket/prefix?endpoint=http://127.0.0.1:{free_ports(1)[0]}")
    with pytest.raises(Unavailable):
        store.put_file(source, PATH)
    with pytest.raises(Unavailable):
        store.fetch_file(PATH, tmp_path / "back")


def test_the_endpoint_may_come_from_the_environment(
    s3_credentials: S3Server, monkeypatch: pytest.MonkeyPatch, source: Path
) -> None:
    monkeypatch.setenv("MOTET_STORE_ENDPOINT_URL", s3_credentials.endpoint)
    store = open_store("s3://motet-tests/environment")
    store.put_file(source, PATH)
    assert list(store.list("")) == [PATH]


@pytest.mark.parametrize(
    "url", ["http://x/y", "s3:///prefix", "s3://bucket/../x", "s3://bucket/x?endpont=y", "file://host/x"]
)
def test_urls_that_are_no_store(url: str) -> None:
    with pytest.raises(ValueError, match="store"):
        open_store(url)
