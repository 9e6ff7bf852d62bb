"""Adapters in a folder of the web, as Hugging Face serves them: from where the operator allows, and never
from an address inside (`webhooks/destinations.py`).

Every redirect is a new request: its URL must be allowed as the first was, and its address is looked at when
it is resolved, when the socket is made, and once it is connected. Nothing of ours is sent along.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver

from gateway.catalog.parts import (
    ACCEPTANCE_PART,
    CONFIG_PART,
    WEIGHTS_PART,
    Reach,
    UploadLimits,
    too_large,
)
from gateway.errors import BadRequest, Forbidden, Unprocessable
from gateway.webhooks.destinations import DestinationRefused, DestinationRules
from gateway.webhooks.sender import MAX_LINE_BYTES, GuardedConnector, SystemResolver, reason_of

PARAM: Final = "source.url"
MAX_REDIRECTS: Final = 5
CONNECT_S: Final = 10.0
CHUNK_BYTES: Final = 256 * 1024
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class AllowedUrl:
    """`https://host[:port]/path/`: everything below it."""

    scheme: str
    host: str
    port: int | None
    path: str

    @classmethod
    def of(cls, text: str) -> AllowedUrl:
        """Raises ValueError."""
        parts = urlsplit(text)
        if parts.scheme not in ("https", "http") or not parts.hostname or not parts.path.endswith("/"):
            raise ValueError(
                f"a URL for imports is https://host/path/ with a slash at its end, unlike {text!r}"
            )
        if parts.query or parts.fragment or parts.username is not None:
            raise ValueError(f"a URL for imports has no query, fragment or user, unlike {text!r}")
        return cls(parts.scheme, parts.hostname, parts.port, parts.path)

    def holds(self, url: str) -> bool:
        parts = urlsplit(url)
        here = (parts.scheme, parts.hostname, parts.port)
        return here == (self.scheme, self.host, self.port) and parts.path.startswith(self.path)


class UrlSource:
    """`resolver` is for tests of what a name server may do."""

    def __init__(
        self,
        allowed: tuple[AllowedUrl, ...],
        rules: DestinationRules,
        limits: UploadLimits,
        resolver: Callable[[], AbstractResolver] = SystemResolver,
    ) -> None:
        self._allowed = allowed
        self._rules = rules
        self._limits = limits
        self._resolver = resolver
        self._timeout = aiohttp.ClientTimeout(
            total=limits.total_s, connect=CONNECT_S, sock_read=limits.idle_s
        )

    @classmethod
    def of(cls, urls: str, networks: str, limits: UploadLimits) -> UrlSource:
        """From comma-separated settings; no URL allows nothing. `networks`: where sources may be besides the
        public internet, and there without TLS too. Raises ValueError."""
        allowed = tuple(AllowedUrl.of(each.strip()) for each in urls.split(",") if each.strip())
        ports = {443, *(each.port for each in allowed if each.port is not None)}
        rules = DestinationRules.of(networks, ",".join(map(str, sorted(ports))), http=bool(networks.strip()))
        return cls(allowed, rules, limits)

    async def fetch(self, url: str, directory: Path, reach: Reach) -> None:
        """Writes the folder's files into `directory`. Raises `Forbidden`, `BadRequest`, `BodyTooLarge`,
        `Unprocessable`, OSError, and what `reach` raises."""
        if urlsplit(url).query or urlsplit(url).fragment or not url.endswith("/"):
            raise BadRequest("The source must be https://host/path/.", param=PARAM, code="invalid_value")
        kept = 0
        for name in (CONFIG_PART, WEIGHTS_PART, ACCEPTANCE_PART):
            kept += await self._fetch(url + name, name, directory / name, kept, reach)

    async def _fetch(self, url: str, name: str, target: Path, before: int, reach: Reach) -> int:
        """The file's bytes; 0 for an optional one that is not there."""
        for _ in range(MAX_REDIRECTS + 1):
            self._require_allowed(url)
            try:
                found = await self._ask(url, name, target, before, reach)
            except DestinationRefused as refused:
                raise Forbidden(
                    f"The source is refused: {refused}.", param=PARAM, code="import_not_allowed"
                ) from None
            except TimeoutError:
                raise self._failed(f"'{name}' did not come in time") from None
            except (aiohttp.ClientError, ValueError) as error:
                raise self._failed(f"'{name}': {reason_of(error)}") from None
            if isinstance(found, int):
                return found
            url = urljoin(url, found)
        raise self._failed(f"'{name}' is redirected more than {MAX_REDIRECTS} times")

    async def _ask(self, url: str, name: str, target: Path, before: int, reach: Reach) -> int | str:
        """The bytes that were written, or where it is instead."""
        connector = GuardedConnector(self._rules, self._rules.destination(url), self._resolver())
        async with (
            aiohttp.ClientSession(
                connector=connector,
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                max_line_size=MAX_LINE_BYTES,
                max_field_size=MAX_LINE_BYTES,
                read_bufsize=CHUNK_BYTES,
                headers={"accept-encoding": "identity", "user-agent": "motet"},
            ) as session,
            session.get(url, allow_redirects=False) as answer,
        ):
            if answer.status in _REDIRECTS and "location" in answer.headers:
                return answer.headers["location"]
            if answer.status == 404 and name == ACCEPTANCE_PART:
                return 0
            if answer.status != 200:
                raise self._failed(f"'{name}' answered {answer.status}")
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise self._failed(f"'{name}' came compressed")
            return await self._keep(answer, name, target, before, reach)

    async def _keep(
        self, answer: aiohttp.ClientResponse, name: str, target: Path, before: int, reach: Reach
    ) -> int:
        most, kept = self._limits.of_files[name], 0
        if answer.content_length is not None:
            if answer.content_length > most:
                raise too_large(name, most)
            await reach(before + answer.content_length)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                if kept + len(chunk) > most:
                    raise too_large(name, most)
                await reach(before + kept + len(chunk))
                await asyncio.to_thread(_write_all, descriptor, chunk)
                kept += len(chunk)
        finally:
            os.close(descriptor)
        return kept

    def _require_allowed(self, url: str) -> None:
        try:
            allowed = any(each.holds(url) for each in self._allowed)
        except ValueError:  # of a port or an address that can't be read
            allowed = False
        if not allowed or "/../" in url or "/./" in url or "%2e" in url.lower() or "\\" in url:
            raise Forbidden(
                "The operator of this platform allows no import from there.",
                param=PARAM,
                code="import_not_allowed",
            )

    def _failed(self, why: str) -> Unprocessable:
        return Unprocessable(f"The source can't be imported: {why}.", param=PARAM, code="source_failed")


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
