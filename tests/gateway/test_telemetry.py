"""No secret reaches a log line, by whatever way it gets there."""

from __future__ import annotations

import errno
import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from prometheus_client import REGISTRY

from gateway.admin_auth.service import ADMIN_TOKEN
from gateway.api_keys.authenticator import API_KEY
from gateway.telemetry import REDACTED, configure_logging


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging(stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_secrets_are_cut_from_names_values_exceptions_and_foreign_loggers(lines: io.StringIO) -> None:
    key, token = API_KEY.mint().text, ADMIN_TOKEN.mint().text
    log = structlog.get_logger("test")
    log.info(
        "x",
        authorization=f"Bearer {key}",
        url="postgresql://user:hunter2@host/db",
        nested={"password": "hunter2"},
    )
    log.info(f"event with {key} inside", items=[token, {"cookie": "hunter2"}])
    log.error("failed", exc_info=ValueError(f"broken with {token} and redis://:hunter2@host"))
    logging.getLogger("foreign").warning("foreign saw %s and Bearer hunter2", key)
    text = lines.getvalue()
    assert "hunter2" not in text
    assert key not in text
    assert token not in text
    assert text.count(REDACTED) >= 7
    assert all(json.loads(line)["timestamp"] for line in text.splitlines())


def test_what_is_no_secret_stays(lines: io.StringIO) -> None:
    structlog.get_logger("test").info("x", prompt_tokens=3, max_tokens=4, key_id="abc", status=200)
    event = json.loads(lines.getvalue())
    assert (event["prompt_tokens"], event["max_tokens"], event["key_id"], event["status"]) == (
        3,
        4,
        "abc",
        200,
    )


class FullDisk(io.StringIO):
    """Takes nothing while it is full."""

    full = True

    def write(self, text: str, /) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_a_line_that_can_not_be_written_harms_nobody_and_is_counted(lines: io.StringIO) -> None:
    disk = FullDisk()
    configure_logging(disk)
    lost = REGISTRY.get_sample_value("motet_log_lines_lost_total") or 0.0
    log = structlog.get_logger("x")
    log.info("one")
    log.critical("two", exc_info=OSError("no"))
    assert REGISTRY.get_sample_value("motet_log_lines_lost_total") == lost + 2
    disk.full = False
    log.info("three")
    assert [json.loads(line)["event"] for line in disk.getvalue().splitlines()] == ["three"]
