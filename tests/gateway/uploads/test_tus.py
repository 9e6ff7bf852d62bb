"""The protocol, through the whole gateway: what each request answers, and what an interrupted one leaves."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from gateway.catalog.parts import CONFIG_PART, WEIGHTS_PART
from gateway.db import Database
from gateway.uploads.sweeping import delete_expired, remove_unwanted
from tests.gateway.conftest import Operator
from tests.gateway.uploads.conftest import BYTES, TUS, Bench, metadata


def checksum(data: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm} {base64.b64encode(hashlib.new(algorithm, data).digest()).decode()}"


def test_what_it_can_do_is_told_to_anybody(bench: Bench) -> None:
    for path in ("/v1/uploads", f"/api/v1/tenants/{bench.tenant}/uploads"):
        told = bench.client.options(path)
        assert told.status_code == 204
        assert told.headers["tus-version"] == "1.0.0"
        assert "creation-with-upload" in told.headers["tus-extension"]
        assert set(told.headers["tus-checksum-algorithm"].split(",")) == {"sha1", "sha256"}
        assert int(told.headers["tus-max-size"]) > 2 * 2**30


def test_a_file_in_pieces_goes_on_where_it_was(bench: Bench) -> None:
    data = bytes(range(256)) * 12
    place = bench.begin(WEIGHTS_PART, len(data))
    assert not place.startswith("http")
    first = bench.patch(place, 0, data[:1000])
    assert (first.status_code, first.headers["upload-offset"]) == (204, "1000")
    assert "upload-expires" in first.headers
    wrong = bench.patch(place, 900, data[900:])
    assert (wrong.status_code, wrong.headers["upload-offset"]) == (409, "1000")
    assert wrong.json()["error"]["code"] == "wrong_offset"
    seen = bench.request("HEAD", place, headers=TUS)
    assert seen.headers["upload-length"] == str(len(data))
    assert seen.headers["upload-metadata"] == metadata(filename=WEIGHTS_PART)
    assert seen.headers["cache-control"] == "no-store"
    assert (
        bench.patch(place, 1000, data[1000:], upload_checksum=checksum(data[1000:], "sha1")).status_code
        == 204
    )
    assert bench.request("GET", place).json()["finished"] is True
    path = bench.services.uploads.files.path(UUID(place.rpartition("/")[2]))
    assert path.read_bytes() == data
    assert bench.request("DELETE", place, headers=TUS).status_code == 204
    assert bench.request("HEAD", place, headers=TUS).status_code == 404
    assert not path.exists()


def test_creation_with_the_first_bytes(bench: Bench) -> None:
    made = bench.create(CONFIG_PART, 10, content=b"12345", headers=BYTES)
    assert (made.status_code, made.headers["upload-offset"]) == (201, "5")
    before = bench.request("GET", "/v1/uploads").json()["data"]
    refused = bench.create(
        CONFIG_PART, 10, content=b"12345", headers={**BYTES, "upload-checksum": checksum(b"x")}
    )
    assert refused.status_code == 460
    assert bench.request("GET", "/v1/uploads").json()["data"] == before  # nobody has heard of it


def test_a_wrong_checksum_names_the_file_and_the_place_and_costs_that_request_only(bench: Bench) -> None:
    data = bytes(2000)
    place = bench.begin(WEIGHTS_PART, len(data))
    assert bench.patch(place, 0, data[:500], upload_checksum=checksum(data[:500])).status_code == 204
    refused = bench.patch(place, 500, data[500:], upload_checksum=checksum(b"other"))
    assert (refused.status_code, refused.headers["tus-resumable"]) == (460, "1.0.0")
    error = refused.json()["error"]
    assert (error["code"], error["param"]) == ("checksum_mismatch", WEIGHTS_PART)
    assert f"'{WEIGHTS_PART}'" in error["message"]
    assert "byte 500" in error["message"]
    assert bench.offset(place) == 500
    assert bench.patch(place, 500, data[500:], upload_checksum=checksum(data[500:])).status_code == 204


def test_a_whole_file_that_is_not_what_was_announced_is_gone(bench: Bench) -> None:
    place = bench.begin(WEIGHTS_PART, 3, metadata={"sha256": hashlib.sha256(b"abc").hexdigest()})
    refused = bench.patch(place, 0, b"abd")
    assert refused.status_code == 460
    assert refused.json()["error"]["param"] == WEIGHTS_PART
    assert bench.request("HEAD", place, headers=TUS).status_code == 404
    place = bench.begin(WEIGHTS_PART, 3, metadata={"sha256": hashlib.sha256(b"abc").hexdigest()})
    assert bench.patch(place, 0, b"abc").status_code == 204


@pytest.mark.parametrize(
    ("headers", "status", "param"),
    [
        ({"tus-resumable": "0.2.2"}, 412, "tus-resumable"),
        ({"upload-length": ""}, 400, "upload-length"),
        ({"upload-length": "-1"}, 400, "upload-length"),
        ({"upload-length": "0"}, 400, "upload-length"),
        ({"upload-length": "9" * 15}, 413, WEIGHTS_PART),
        ({"upload-defer-length": "1"}, 400, "upload-defer-length"),
        ({"upload-concat": "partial"}, 400, "upload-concat"),
        ({"upload-metadata": ""}, 400, "upload-metadata"),
        ({"upload-metadata": metadata(filename="../../etc/passwd")}, 400, "upload-metadata"),
        ({"upload-metadata": metadata(filename="../x.zip")}, 400, "upload-metadata"),
        ({"upload-metadata": metadata(filename="adapter_model.bin")}, 400, "upload-metadata"),
        ({"upload-metadata": "filename !!!"}, 400, "upload-metadata"),
        ({"upload-metadata": "filename " + "A" * 3000}, 400, "upload-metadata"),
        ({"upload-metadata": metadata(filename=WEIGHTS_PART, sha256="ABC")}, 400, "upload-metadata"),
        ({"upload-metadata": metadata(filename=CONFIG_PART), "upload-length": "300000"}, 413, CONFIG_PART),
        ({"upload-checksum": "md5 x"}, 400, "upload-checksum"),
        ({"upload-checksum": "sha1 x"}, 400, "upload-checksum"),
        ({"content-type": "text/plain"}, 415, "content-type"),
    ],
)
def test_creations_that_are_refused(bench: Bench, headers: dict[str, str], status: int, param: str) -> None:
    good = {**TUS, "upload-length": "10", "upload-metadata": metadata(filename=WEIGHTS_PART)}
    answer = bench.request("POST", "/v1/uploads", headers={**good, **headers})
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), answer.text
    assert answer.headers["tus-resumable"] == "1.0.0"
    assert bench.request("GET", "/v1/uploads").json()["data"] == []


def test_more_than_was_announced_is_refused_and_changes_nothing(bench: Bench) -> None:
    place = bench.begin(CONFIG_PART, 4)
    assert bench.patch(place, 0, b"12345").status_code == 413
    assert bench.offset(place) == 0


def test_methods_can_be_named_in_a_header(bench: Bench) -> None:
    place = bench.begin(CONFIG_PART, 2)
    headers = {**TUS, **BYTES, "upload-offset": "0", "x-http-method-override": "PATCH"}
    assert bench.request("POST", place, content=b"{}", headers=headers).status_code == 204
    assert bench.request("POST", place, headers=TUS).status_code == 405
    assert (
        bench.request("POST", place, headers={**TUS, "x-http-method-override": "DELETE"}).status_code == 204
    )
    assert bench.request("GET", place).status_code == 404


async def test_anothers_upload_is_as_unknown_as_none(
    bench: Bench, new_bench: Callable[[], Awaitable[Bench]], operator: Operator
) -> None:
    stranger = await new_bench()
    place = bench.begin(CONFIG_PART, 4)
    for path in (place, f"/v1/uploads/{uuid4()}"):
        answers = [
            stranger.request("GET", path),
            stranger.request("HEAD", path, headers=TUS),
            stranger.patch(path, 0, b"1234"),
            stranger.request("DELETE", path, headers=TUS),
            stranger.version("a", uploads=[path.rpartition("/")[2]]),
        ]
        assert {answer.status_code for answer in answers} == {404}
        assert {answer.json()["error"]["message"] for answer in answers if answer.content} == {
            "There is no such upload."
        }
    assert bench.offset(place) == 0
    under = f"/api{place}".replace("/v1/", f"/v1/tenants/{bench.tenant}/")
    assert bench.client.get(under, headers=operator.headers).json()["file"] == CONFIG_PART


async def test_what_expired_is_unknown_and_then_swept_with_its_file(bench: Bench, db: Database) -> None:
    place, kept = bench.begin(CONFIG_PART, 4), bench.begin(WEIGHTS_PART, 4)
    expired = UUID(place.rpartition("/")[2])
    async with db.system_session() as session:
        await session.execute(
            text("UPDATE uploads SET expires_at = now() - interval '1 s' WHERE id = :id"), {"id": expired}
        )
    assert bench.request("HEAD", place, headers=TUS).status_code == 404
    uploads = bench.services.uploads
    held = uploads.files.open(expired)  # somebody still writes it
    assert await delete_expired(db) >= 1
    await remove_unwanted(db, uploads.files)
    assert uploads.files.has(expired)
    held.close()
    assert await remove_unwanted(db, uploads.files) == 1
    assert not uploads.files.has(expired)
    assert bench.offset(kept) == 0
    assert bench.request("DELETE", kept, headers=TUS).status_code == 204


def test_open_uploads_are_listed_in_pages_and_counted(bench: Bench) -> None:
    made = [bench.begin(CONFIG_PART, 1).rpartition("/")[2] for _ in range(3)]
    first = bench.request("GET", "/v1/uploads?limit=2").json()
    rest = bench.request("GET", f"/v1/uploads?limit=2&cursor={first['next_cursor']}").json()
    assert [each["id"] for each in first["data"] + rest["data"]] == made[::-1]
    assert rest["has_more"] is False
    for _ in range(29):
        bench.begin(CONFIG_PART, 1)
    refused = bench.create(CONFIG_PART, 1)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "too_many_open_uploads")
