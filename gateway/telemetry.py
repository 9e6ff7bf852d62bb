"""Logs as JSON without secrets, and metrics that add up over all workers."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any, Final, TextIO

import msgspec
import structlog
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Counter, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from gateway import metric_values

METRICS_CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
METRICS_DIR: Final = "PROMETHEUS_MULTIPROC_DIR"
"""Read by prometheus_client when it is first imported: `serve` sets it before a worker starts."""

_SECRET_NAMES = re.compile(
    r"authorization|cookie|password|secret|token|api_?key|pepper|prompt|messages|csrf", re.IGNORECASE
)
_SAFE_NAMES = re.compile(
    r"(^|_)(num|max|prompt|completion|cached|billed|used)_?tokens|tokens$|^key_id$|^token_id$"
)
_SECRET_VALUES = re.compile(
    r"\bmta?_[a-z2-7]{12}_[a-z2-7]+"  # API keys, admin tokens
    r"|(?<=[Bb]earer )\S+"
    r"|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"  # user:password@ of a URL
)
REDACTED: Final = "[redacted]"
_PLAIN: Final = (int, float, type(None))


LOST_LINES = Counter(
    "motet_log_lines_lost", "Lines that could not be written: a full disk, a reader that left."
)


class _Lines(structlog.WriteLogger):
    """Where the lines of one logger go. Its name is told by `_add_name`. A line that can't be written is
    counted and lost: what it tells of goes on."""

    def __init__(self, stream: TextIO, name: str) -> None:
        super().__init__(stream)
        self.name = name

    def msg(self, message: str) -> None:
        try:
            super().msg(message)
        except OSError:
            LOST_LINES.inc()

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


def configure_logging(stream: TextIO = sys.stderr, level: int = logging.INFO) -> None:
    """One JSON object a line, for structlog and for the libraries that use `logging`.

    Ours don't pass through `logging`: a line for each request would cost five times as much there.
    """
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[structlog.types.Processor] = [
        structlog.processors.format_exc_info,
        redact,
        structlog.processors.JSONRenderer(serializer=_as_json),
    ]
    structlog.configure(
        processors=[*shared, _add_name, *last],
        logger_factory=lambda name="": _Lines(stream, name),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Last processor before writing: fields with a secret's name are blanked, and secrets inside any text
    are cut."""
    if _is_clean(event):
        return event
    return {name: _clean(name, value) for name, value in event.items()}


def _is_clean(event: MutableMapping[str, Any]) -> bool:
    """Whether a flat event, which nearly every one is, holds no secret: one search for all of its texts."""
    texts = []
    for name, value in event.items():
        if _is_secret(name):
            return False
        if isinstance(value, str):
            texts.append(value)
        elif not isinstance(value, _PLAIN):
            return False
    return _SECRET_VALUES.search("\n".join(texts)) is None


def _add_name(logger: Any, _: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    event["logger"] = logger.name
    return event


def _as_json(event: Any, **_: Any) -> str:
    """What has no form in JSON is told as Python shows it."""
    return msgspec.json.encode(event, enc_hook=repr).decode()


def render_metrics() -> bytes:
    """The exposition text: of all workers when several share a metrics folder, else of this process."""
    if METRICS_DIR not in os.environ:
        return generate_latest(REGISTRY)
    metric_values.write()
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # untyped upstream
    return generate_latest(registry)


@lru_cache(maxsize=1024)
def _is_secret(name: str) -> bool:
    return bool(_SECRET_NAMES.search(name)) and not _SAFE_NAMES.search(name)


def _clean(name: str, value: Any) -> Any:
    if _is_secret(name):
        return REDACTED
    match value:
        case str():
            return _SECRET_VALUES.sub(REDACTED, value)
        case dict():
            return {key: _clean(str(key), inner) for key, inner in value.items()}
        case list() | tuple():
            return [_clean(name, inner) for inner in value]
        case None | bool() | int() | float():
            return value
        case _:
            return _SECRET_VALUES.sub(REDACTED, str(value))
