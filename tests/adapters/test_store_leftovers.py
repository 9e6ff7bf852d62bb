"""What a put that died leaves in the store, what a store that is wrong says, and digests of what was put."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import boto3
import pytest

from adapters.store import NoStore, NotFound, StoreError, artefact_path, open_store
from adapters.store_s3 import SHA256, S3Store
from tests.adapters.conftest import S3Server
from tests.s3_server import BUCKET

PATH = artefact_path("0190a1b2-0000-7000-8000-000000000001", "ab" * 32)


def s3_client(server: S3Server) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        region_name="us-east-1",
    )


def test_what_a_killed_put_left_in_a_folder(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/store")
    (tmp_path / "source").write_bytes(b"whole")
    store.put_file(tmp_path / "source", PATH)
    left = tmp_path / "store" / Path(PATH).parent / ".adapter.motet.4711.0.tmp"
    left.write_bytes(b"hal")
    lone = tmp_path / "store" / "tenants" / "a" / "b" / ".adapter.motet.4711.1.tmp"
    lone.parent.mkdir(parents=True)
    lone.touch()
    assert list(store.unfinished(60)) == []  # it may be under way
    os.utime(left, (time.time() - 90, time.time() - 90))
    (put,) = store.unfinished(60)
    assert (put.path, put.age_s > 80) == (PATH, True)
    for each in list(store.unfinished(-1)):
        store.discard(each)
        store.discard(each)
    assert list(store.unfinished(-1)) == []
    assert list(store.list("")) == [PATH]
    assert not lone.parent.exists()


def test_what_a_killed_put_left_in_a_bucket(s3_credentials: S3Server, tmp_path: Path) -> None:
    store, client = open_store(s3_credentials.url(f"left-{tmp_path.name}")), s3_client(s3_credentials)
    key = f"left-{tmp_path.name}/{PATH}"
    begun = client.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
    client.upload_part(Bucket=BUCKET, Key=key, UploadId=begun, PartNumber=1, Body=bytes(5 << 20))
    assert list(store.list("")) == []
    assert list(store.unfinished(60)) == []
    (put,) = store.unfinished(-60)
    assert (put.path, put.token) == (PATH, begun)
    store.discard(put)
    store.discard(put)
    assert list(store.unfinished(-60)) == []


@pytest.mark.parametrize("size", [9, 20 * 1024 * 1024 + 1])
def test_an_object_carries_the_digest_of_what_was_put(
    s3_credentials: S3Server, tmp_path: Path, size: int
) -> None:
    store = open_store(s3_credentials.url(f"digest-{tmp_path.name}"))
    (tmp_path / "source").write_bytes(os.urandom(size))
    store.put_file(tmp_path / "source", PATH)
    told = s3_client(s3_credentials).head_object(Bucket=BUCKET, Key=f"digest-{tmp_path.name}/{PATH}")
    assert told["Metadata"][SHA256] == hashlib.sha256((tmp_path / "source").read_bytes()).hexdigest()
    assert list(store.unfinished(-60)) == []


def test_a_bucket_that_is_missing_is_not_an_object_that_is(s3_credentials: S3Server, tmp_path: Path) -> None:
    store = open_store(s3_credentials.url("p", bucket="no-such-bucket"))
    for ask in (lambda: store.fetch_file(PATH, tmp_path / "back"), lambda: list(store.list(""))):
        with pytest.raises(NoStore):
            ask()
    with pytest.raises(NotFound):
        open_store(s3_credentials.url("p")).fetch_file(PATH, tmp_path / "back")
    assert not issubclass(NoStore, NotFound)
    assert issubclass(NoStore, StoreError)


def test_servers_that_know_no_checksums(s3_credentials: S3Server, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"bytes")
    plain = open_store(f"{s3_credentials.url('plain')}&checksums=when_required")
    assert isinstance(plain, S3Store)
    plain.put_file(tmp_path / "source", PATH)
    plain.fetch_file(PATH, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"bytes"
    with pytest.raises(ValueError, match="checksums"):
        open_store(f"{s3_credentials.url('plain')}&checksums=never")
