"""Every way in ends as the same version: pieces, a zip, a bucket, a folder of the web; and once only."""

from __future__ import annotations

import zipfile
from collections.abc import Awaitable, Callable

import boto3
import pytest

from gateway.catalog.parts import CONFIG_PART, WEIGHTS_PART
from tests.gateway.uploads.conftest import STORED, Bench, Files, multipart
from tests.gateway.uploads.hostile_zips import zipped
from tests.s3_server import BUCKET, RunningS3


async def test_every_way_leads_to_the_same_content(
    bench: Bench,
    files: dict[str, bytes],
    web: Files,
    s3: RunningS3,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = bench.post("a", multipart(*files.items()))
    assert first.status_code == STORED, first.text
    digest = first.json()["digest"]

    sent = [bench.sent(name, data) for name, data in files.items()]
    pieces = bench.version("b", uploads=sent)
    folder = zipped({f"my adapter/{name}": data for name, data in files.items()})
    in_folder = bench.version("c", uploads=[bench.sent("one.zip", folder)])
    stored = zipped(files, zipfile.ZIP_STORED)
    flat = bench.version("d", uploads=[bench.sent("two.zip", stored)])

    for name, data in files.items():
        web.by_path[f"/ok/hub/{name}"] = f"/ok/moved/{name}"
        web.by_path[f"/ok/moved/{name}"] = data
    fetched = bench.version("e", source={"url": f"{web.url}/ok/hub/"})

    s3.start()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.server.secret_key)
    client = boto3.client("s3", endpoint_url=s3.server.endpoint, region_name="us-east-1")
    for name in (CONFIG_PART, WEIGHTS_PART):
        client.put_object(Bucket=BUCKET, Key=f"in/{bench.tenant}/mine/{name}", Body=files[name])
    client.put_object(Bucket=BUCKET, Key=f"in/{bench.tenant}/half/{CONFIG_PART}", Body=b"{}")
    client.close()
    imported = bench.version("f", source={"s3": f"s3://{BUCKET}/in/{bench.tenant}/mine/"})
    half = bench.version("f", source={"s3": f"s3://{BUCKET}/in/{bench.tenant}/half/"})
    s3.kill()
    gone = bench.version("f", source={"s3": f"s3://{BUCKET}/in/{bench.tenant}/mine/"})

    for made in (pieces, in_folder, flat, fetched, imported):
        assert made.status_code == STORED, made.text
        assert made.json()["digest"] == digest
    assert (half.status_code, half.json()["error"]["code"]) == (422, "source_incomplete")
    assert (gone.status_code, gone.json()["error"]["code"]) == (503, "source_unavailable")


async def test_a_client_whose_answer_was_lost_asks_again(
    bench: Bench, files: dict[str, bytes], new_bench: Callable[[], Awaitable[Bench]]
) -> None:
    ids = [bench.sent(name, files[name]) for name in (CONFIG_PART, WEIGHTS_PART)]
    made, again = bench.version("a", uploads=ids), bench.version("a", uploads=ids)
    assert (made.status_code, again.status_code) == (STORED, 200)
    assert again.json() == made.json()
    elsewhere = bench.version("b", uploads=ids)
    assert (elsewhere.status_code, elsewhere.json()["error"]["code"]) == (409, "upload_taken")
    assert (await new_bench()).version("a", uploads=ids).status_code == 404
    assert bench.request("GET", "/v1/uploads").json()["data"] == []
    assert bench.request("DELETE", "/v1/adapters/a").status_code == 200
    assert bench.version("a", uploads=ids).status_code == 404
