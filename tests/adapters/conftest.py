"""A real S3 server for the session."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

START_TIMEOUT_S = 60.0
BUCKET = "motet-tests"


@dataclass(frozen=True)
class S3Server:
    endpoint: str
    access_key: str
    secret_key: str

    def url(self, prefix: str = "", bucket: str = BUCKET) -> str:
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """SeaweedFS on free ports, over a folder that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="motet-s3-", ignore_cleanup_errors=True) as folder:
        ports = free_ports(8)
        server = S3Server(f"http://127.0.0.1:{ports[0]}", "motet", "motet-secret")
        process = _start(Path(folder), server, ports)
        try:
            _wait_until_ready(process, server)
            yield server
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # SIGTERM takes it 25 s
            process.wait()


@pytest.fixture
def s3_credentials(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, with its key where boto3 looks for one."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return s3_server


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now, all held at once so that they differ."""
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            listener = held.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            ports.append(int(listener.getsockname()[1]))
        return ports


def _start(folder: Path, server: S3Server, ports: list[int]) -> subprocess.Popen[bytes]:
    identity = {
        "name": "motet",
        "credentials": [{"accessKey": server.access_key, "secretKey": server.secret_key}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    names = (
        "s3.port", "s3.port.grpc", "master.port", "master.port.grpc",
        "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc",
    )  # fmt: skip
    weed = shutil.which("weed", path=str(Path(sys.executable).parent)) or "weed"
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [
            weed,
            "server",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-dir={folder}",
            "-s3",
            f"-s3.config={folder / 's3.json'}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-volume.max=10",
            "-master.volumeSizeLimitMB=64",
            "-master.telemetry=false",
            *(f"-{name}={port}" for name, port in zip(names, ports, strict=True)),
        ],
        cwd=folder,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    log.close()
    return process


def _wait_until_ready(process: subprocess.Popen[bytes], server: S3Server) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        region_name="us-east-1",
        config=Config(
            retries={"total_max_attempts": 1, "mode": "standard"}, connect_timeout=1, read_timeout=5
        ),
    )
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key="ready", Body=b"1")
            client.delete_object(Bucket=BUCKET, Key="ready")
            client.close()
        except (BotoCoreError, ClientError) as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the S3 server did not start (exit code {process.returncode})") from error
            time.sleep(0.1)
        else:
            return
