"""A real S3 server for the session."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.s3_server import RunningS3, S3Server, free_ports

__all__ = ["S3Server", "free_ports"]


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """SeaweedFS on free ports, over a folder that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="motet-s3-", ignore_cleanup_errors=True) as folder:
        running = RunningS3(Path(folder))
        try:
            running.start()
            yield running.server
        finally:
            running.kill()


@pytest.fixture
def s3_credentials(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, with its key where boto3 looks for one."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return s3_server
