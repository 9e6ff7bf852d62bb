"""Requests that break off, fall silent, meet each other or a full disk: what is kept, and what they hear."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.audit.service import Actor
from gateway.catalog.parts import WEIGHTS_PART, UploadLimits
from gateway.db import Database
from gateway.errors import BadRequest, BodyTooLarge, Conflict, RateLimited, RequestTimeout, Unavailable
from gateway.ids import uuid7
from gateway.models import Upload
from gateway.principal import TenantId
from gateway.tenant_slots import TenantSlots
from gateway.uploads import arrival
from gateway.uploads.files import OpenUploads
from gateway.uploads.protocol import Announced, Busy, Checksum
from gateway.uploads.room import Allowance, Room
from gateway.uploads.service import Ages, Piece, Uploads

DATA = os.urandom(200)
LIMITS = UploadLimits(64 << 20, idle_s=60.0, total_s=120.0)


@pytest.fixture
async def uploads(db: Database, tmp_path: Path) -> AsyncIterator[Uploads]:
    files = OpenUploads(tmp_path / "open")
    made = Uploads(db, files, Room(db, Allowance()), LIMITS, Ages(), TenantSlots("transfers", 4, 2))
    yield made
    made.close()


@pytest.fixture
async def upload(uploads: Uploads, tenant: TenantId) -> Upload:
    return await uploads.create(tenant, Actor("key:test"), Announced(WEIGHTS_PART, len(DATA), ""))


async def at_once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def held(first: bytes, rest: bytes, begun: asyncio.Event, go_on: asyncio.Event) -> AsyncIterator[bytes]:
    yield first
    begun.set()
    await go_on.wait()
    yield rest


def piece(offset: int, chunks: AsyncIterator[bytes], checksum: Checksum | None = None) -> Piece:
    return Piece(offset, None, checksum, chunks)


async def received(uploads: Uploads, upload: Upload) -> int:
    return (await uploads.get(TenantId(upload.tenant_id), upload.id)).received


async def test_a_client_that_leaves_leaves_what_came_unless_it_had_a_checksum(
    uploads: Uploads, upload: Upload, tenant: TenantId
) -> None:
    async def cut(data: bytes) -> AsyncIterator[bytes]:
        yield data
        raise BadRequest("gone")

    with pytest.raises(BadRequest, match="gone"):
        await uploads.write(tenant, upload.id, piece(0, cut(DATA[:70])))
    assert await received(uploads, upload) == 70
    with pytest.raises(BadRequest, match="gone"):
        await uploads.write(tenant, upload.id, piece(70, cut(DATA[70:90]), Checksum("sha1", bytes(20))))
    assert await received(uploads, upload) == 70
    await uploads.write(tenant, upload.id, piece(70, at_once(DATA[70:])))
    assert uploads.files.path(upload.id).read_bytes() == DATA


async def test_bytes_beyond_the_announced_are_refused_as_they_come(
    uploads: Uploads, upload: Upload, tenant: TenantId
) -> None:
    async def more() -> AsyncIterator[bytes]:
        yield DATA[:150]
        yield DATA

    with pytest.raises(BodyTooLarge):
        await uploads.write(tenant, upload.id, piece(0, more()))
    assert await received(uploads, upload) == 150
    assert uploads.files.path(upload.id).stat().st_size == 150


async def test_of_two_requests_at_once_one_wins(uploads: Uploads, upload: Upload, tenant: TenantId) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(
        uploads.write(tenant, upload.id, piece(0, held(DATA[:70], DATA[70:], begun, go_on)))
    )
    await begun.wait()
    with pytest.raises(Busy):
        await uploads.write(tenant, upload.id, piece(0, at_once(DATA)))
    with pytest.raises(Busy):
        await uploads.delete(tenant, Actor("key:test"), upload.id)
    go_on.set()
    assert (await first).received == len(DATA)
    assert uploads.files.path(upload.id).read_bytes() == DATA


@pytest.mark.parametrize("with_checksum", [False, True])
async def test_a_silent_request_lets_another_go_on(
    uploads: Uploads, upload: Upload, tenant: TenantId, monkeypatch: pytest.MonkeyPatch, with_checksum: bool
) -> None:
    """As when a connection died unnoticed. If it wakes up it hears that it is too late."""
    monkeypatch.setattr(arrival, "SILENCE_S", 0.05)
    begun, go_on = asyncio.Event(), asyncio.Event()
    checksum = Checksum("sha1", bytes(20)) if with_checksum else None
    silent = asyncio.create_task(
        uploads.write(tenant, upload.id, piece(0, held(DATA[:70], DATA[70:], begun, go_on), checksum))
    )
    offset = 0 if with_checksum else 70
    await begun.wait()
    async with asyncio.timeout(60):
        while True:
            try:
                await uploads.write(tenant, upload.id, piece(offset, at_once(DATA[offset:])))
                break
            except (Busy, Conflict):
                await asyncio.sleep(0.02)
    go_on.set()
    with pytest.raises(Conflict) as late:
        await silent
    assert late.value.code == "upload_overtaken"
    assert uploads.files.path(upload.id).read_bytes() == DATA


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (UploadLimits(1000, idle_s=0.05, total_s=120), "Nothing"),
        (UploadLimits(1000, idle_s=60, total_s=0.05), "longer than"),
    ],
)
async def test_a_silent_client_and_a_slow_one_are_let_go(
    uploads: Uploads, upload: Upload, tenant: TenantId, limits: UploadLimits, why: str
) -> None:
    uploads.limits = limits
    begun = asyncio.Event()
    chunks = held(DATA[:70], b"", begun, asyncio.Event())
    slow = asyncio.create_task(uploads.write(tenant, upload.id, piece(0, chunks)))
    other = asyncio.create_task(uploads.write(tenant, uuid7(), piece(0, chunks)))
    await asyncio.sleep(0)
    with pytest.raises(RateLimited):  # two at a time of this tenant
        await uploads.write(tenant, upload.id, piece(0, at_once(b"y")))
    with pytest.raises(RequestTimeout, match=why):
        await slow
    with pytest.raises(Unavailable):  # its bytes are not here
        await other
    assert await received(uploads, upload) == 70


@contextmanager
def small_disk(num_bytes: int) -> Iterator[None]:
    """No file of this process grows beyond it: the same error path as a full disk, on any machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_is_said_and_what_was_safe_stays(
    db: Database, uploads: Uploads, tenant: TenantId
) -> None:
    size = 3 << 20
    upload = await uploads.create(tenant, Actor("key:test"), Announced(WEIGHTS_PART, size, ""))
    await uploads.write(tenant, upload.id, piece(0, at_once(bytes(1000))))
    with small_disk(2 << 20), pytest.raises(Unavailable) as full:
        await uploads.write(tenant, upload.id, piece(1000, at_once(bytes(size - 1000))))
    assert (full.value.status, full.value.code) == (503, "disk_full")
    assert await received(uploads, upload) >= 1000
    rest = size - await received(uploads, upload)
    await uploads.write(tenant, upload.id, piece(size - rest, at_once(bytes(rest))))
    assert await received(uploads, upload) == size


async def test_an_upload_has_an_age_that_no_byte_makes_younger(
    db: Database, tmp_path: Path, tenant: TenantId
) -> None:
    ages = Ages(idle=timedelta(hours=2), total=timedelta(hours=3))
    files = OpenUploads(tmp_path / "open")
    uploads = Uploads(db, files, Room(db, Allowance()), LIMITS, ages, TenantSlots("transfers", 4, 2))
    upload = await uploads.create(tenant, Actor("key:test"), Announced(WEIGHTS_PART, 2, ""))
    assert upload.expires_at - upload.created_at < timedelta(hours=2, minutes=1)
    async with db.tenant_session(tenant) as session:
        row = await session.get(Upload, upload.id)
        assert row is not None
        row.created_at -= timedelta(hours=2)
    later = await uploads.write(tenant, upload.id, piece(0, at_once(b"x")))
    assert later.expires_at == later.created_at + timedelta(hours=3)
    uploads.close()
