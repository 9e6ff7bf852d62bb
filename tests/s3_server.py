"""A real S3 server (SeaweedFS) over a folder, which can be killed and started again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

START_TIMEOUT_S = 60.0
BUCKET = "motet-tests"
MAX_VOLUMES = 60
"""Of 64 MB: what is deleted frees nothing for a while, and a bucket takes seven at a time."""
NEEDS_A_VOLUME = 256 * 1024
"""Bytes: smaller objects are kept beside their names, before there is room for others."""


@dataclass(frozen=True)
class S3Server:
    endpoint: str
    access_key: str
    secret_key: str

    def url(self, prefix: str = "", bucket: str = BUCKET) -> str:
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}"


class RunningS3:
    """One server. A second `start` finds what the first one stored. `niceness`: of its process (nice(1)),
    more where it stands for another machine, whose cores are not this one's."""

    def __init__(self, folder: Path, niceness: int = 0) -> None:
        self._folder = folder
        self._niceness = niceness
        self._ports = free_ports(8)
        self.server = S3Server(f"http://127.0.0.1:{self._ports[0]}", "motet", "motet-secret")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = _start(self._folder, self.server, self._ports, self._niceness)
        _wait_until_ready(self.process, self.server)

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)  # SIGTERM takes it 25 s
            self.process.wait()
            self.process = None


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now, all held at once so that they differ."""
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            listener = held.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            ports.append(int(listener.getsockname()[1]))
        return ports


def _start(folder: Path, server: S3Server, ports: list[int], niceness: int) -> subprocess.Popen[bytes]:
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
            *("nice", "-n", str(niceness)),
            weed,
            "server",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-dir={folder}",
            "-s3",
            f"-s3.config={folder / 's3.json'}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-volume.max={MAX_VOLUMES}",
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
            if BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
                client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key="ready", Body=bytes(NEEDS_A_VOLUME))
            client.delete_object(Bucket=BUCKET, Key="ready")
            client.close()
        except (BotoCoreError, ClientError) as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the S3 server did not start (exit code {process.returncode})") from error
            time.sleep(0.1)
        else:
            return
