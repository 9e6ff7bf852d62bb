import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.catalog.parts import (
    CONFIG_PART,
    MAX_CONFIG_BYTES,
    WEIGHTS_PART,
    UnsupportedMediaType,
    UploadLimits,
    boundary_of,
    check_length,
    receive_parts,
)
from gateway.errors import ApiError, BadRequest, BodyTooLarge, RequestTimeout

LIMITS = UploadLimits(max_bytes=3 << 20, idle_s=5.0, total_s=20.0)
BOUNDARY = "xyz"


def body_of(*parts: tuple[str, bytes]) -> bytes:
    head = 'Content-Disposition: form-data; name="{}"; filename="../../evil"'
    blocks = [f"--{BOUNDARY}\r\n{head.format(n)}\r\n\r\n".encode() + data + b"\r\n" for n, data in parts]
    return b"".join(blocks) + f"--{BOUNDARY}--\r\n".encode()


async def chunked(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def no_bound(_: int) -> None:
    """As much as comes."""


@pytest.mark.parametrize("size", [7, 1000, 1 << 22])
async def test_parts_reach_the_disk_byte_for_byte(tmp_path: Path, size: int) -> None:
    weights = os.urandom(30_000) + b"\r\n--xy" + b"\r" * 100
    body = body_of((WEIGHTS_PART, weights), (CONFIG_PART, b"{}"))
    parts = await receive_parts(chunked(body, size), BOUNDARY, tmp_path, LIMITS, no_bound)
    assert parts.weights.read_bytes() == weights
    assert parts.config.read_bytes() == b"{}"
    assert sorted(os.listdir(tmp_path)) == [CONFIG_PART, WEIGHTS_PART]


@pytest.mark.parametrize(
    ("body", "error", "code", "param"),
    [
        (body_of((CONFIG_PART, b"{}")), BadRequest, "missing_required_parameter", WEIGHTS_PART),
        (body_of((WEIGHTS_PART, b"x")), BadRequest, "missing_required_parameter", CONFIG_PART),
        (body_of((CONFIG_PART, b"{}"), (CONFIG_PART, b"{}")), BadRequest, "duplicate_parameter", CONFIG_PART),
        (body_of(("adapter_model.bin", b"x")), BadRequest, "unknown_parameter", "adapter_model.bin"),
        (body_of(("../x", b"x")), BadRequest, "unknown_parameter", "../x"),
        (body_of((WEIGHTS_PART, bytes((3 << 20) + 1))), BodyTooLarge, "request_too_large", WEIGHTS_PART),
        (body_of((CONFIG_PART, bytes(MAX_CONFIG_BYTES + 1))), BodyTooLarge, "request_too_large", CONFIG_PART),
        (bytes(4 << 20), BodyTooLarge, "request_too_large", WEIGHTS_PART),
        (body_of((CONFIG_PART, b"{}"))[:-9], BadRequest, "invalid_multipart", None),
        (b"hello world, no boundary here", BadRequest, "invalid_multipart", None),
        (b"", BadRequest, "invalid_multipart", None),
    ],
)
async def test_refusals_are_typed(
    tmp_path: Path, body: bytes, error: type[ApiError], code: str, param: str | None
) -> None:
    with pytest.raises(error) as caught:
        await receive_parts(chunked(body, 1 << 16), BOUNDARY, tmp_path, LIMITS, no_bound)
    assert (caught.value.code, caught.value.param) == (code, param)


async def test_a_silent_client_times_out(tmp_path: Path) -> None:
    async def stalls() -> AsyncIterator[bytes]:
        yield body_of((CONFIG_PART, b"{}"))[:40]
        await asyncio.sleep(60)

    with pytest.raises(RequestTimeout):
        await receive_parts(
            stalls(), BOUNDARY, tmp_path, UploadLimits(1 << 20, idle_s=0.05, total_s=9), no_bound
        )


async def test_a_trickling_client_times_out(tmp_path: Path) -> None:
    async def trickles() -> AsyncIterator[bytes]:
        yield body_of((CONFIG_PART, b"{}"))[:40]
        while True:
            await asyncio.sleep(0.01)
            yield b"x"

    with pytest.raises(RequestTimeout, match="longer than"):
        await receive_parts(
            trickles(), BOUNDARY, tmp_path, UploadLimits(1 << 20, idle_s=9, total_s=0.2), no_bound
        )


@pytest.mark.parametrize(
    ("content_type", "error"),
    [
        ("application/json", UnsupportedMediaType),
        ("", UnsupportedMediaType),
        ("multipart/form-data", BadRequest),
        ("multipart/form-data; boundary=" + "x" * 71, BadRequest),
    ],
)
def test_content_types_without_parts(content_type: str, error: type[ApiError]) -> None:
    with pytest.raises(error):
        boundary_of(content_type)


def test_an_announced_length_over_the_cap_is_refused_unread() -> None:
    assert boundary_of('multipart/form-data; boundary="a b"') == "a b"
    check_length(LIMITS.max_body_bytes, LIMITS)
    with pytest.raises(BodyTooLarge):
        check_length(LIMITS.max_body_bytes + 1, LIMITS)
