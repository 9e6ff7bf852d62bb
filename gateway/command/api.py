"""The command line's way to the API: plain HTTP, one connection a call, errors as one sentence."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

TIMEOUT_S = 60.0
PAGE = 100
MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_LINE_BYTES = 1024 * 1024
_CHUNK_BYTES = 256 * 1024


class CommandFailed(Exception):
    """Said to the user as it stands, on one line."""


class Unreachable(CommandFailed):
    """No answer came."""


class Refused(CommandFailed):
    """The answer was no."""

    def __init__(self, sentence: str, status: int, code: str | None, headers: Mapping[str, str]) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code
        self.headers = headers  # names in lower case


class Api:
    """One gateway, with one credential."""

    def __init__(self, url: str, credential: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CommandFailed(f"'{url}' is not an http:// or https:// URL.")
        self.url = url
        self._host = parts.netloc.rpartition("@")[2]
        self._secure = parts.scheme == "https"
        self._prefix = parts.path.rstrip("/")
        self._headers = {"authorization": f"Bearer {credential}", "accept": "application/json"}

    def get(self, path: str, **query: object) -> Any:
        return self._call("GET", path, query=query)

    def post(self, path: str, body: Mapping[str, Any], timeout_s: float = TIMEOUT_S) -> Any:
        return self._call("POST", path, body=body, timeout_s=timeout_s)

    def put(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Any:
        return self._call("PUT", path, body=body, more=headers)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._call("PATCH", path, body=body)

    def delete(self, path: str) -> Any:
        return self._call("DELETE", path)

    def download(self, path: str, target: Path, **query: object) -> None:
        """Writes the answer's bytes to `target`, which is there whole or not at all."""
        given = {name: value for name, value in query.items() if value is not None}
        connection = self._open(TIMEOUT_S)
        partial = target.with_name(f".{target.name}.part")
        try:
            connection.request("GET", f"{self._prefix}{path}?{urlencode(given)}", headers=self._headers)
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                _answer(response, response.read(MAX_ANSWER_BYTES))
            with partial.open("wb") as opened:
                shutil.copyfileobj(response, opened, _CHUNK_BYTES)
            partial.replace(target)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            partial.unlink(missing_ok=True)
            connection.close()

    def pages(self, path: str, **filters: object) -> Iterator[dict[str, Any]]:
        """Every entry of a list, page by page."""
        cursor: str | None = None
        while True:
            page = self.get(path, **{"limit": PAGE, **filters, "cursor": cursor})
            yield from page["data"]
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def events(self, path: str, after: str | None, silent_s: float) -> Iterator[tuple[str, Any, str | None]]:
        """(event, data, place) of a stream, until it ends or is silent for so long. Raises `Unreachable` or
        `Refused`."""
        connection = self._open(silent_s)
        headers = {**self._headers, "accept": "text/event-stream"}
        try:
            connection.request(
                "GET", self._prefix + path, headers=headers | ({"last-event-id": after} if after else {})
            )
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                _answer(response, response.read(MAX_ANSWER_BYTES))
            with closing(response):  # it holds the socket, too
                yield from _events(response)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def exchange(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Mapping[str, str]:
        """The headers of an answer that has nothing else to tell. Raises `Unreachable` or `Refused`."""
        connection = self._open(TIMEOUT_S)
        try:
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, self._prefix + path, body, {**self._headers, **headers})
            response = connection.getresponse()
            raw = response.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()
        if response.status >= 300:
            _answer(response, raw)
        return _headers(response)

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, Any] | None = None,
        timeout_s: float = TIMEOUT_S,
        more: Mapping[str, str] | None = None,
    ) -> Any:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        headers = {**({} if body is None else {"content-type": "application/json"}), **(more or {})}
        return self._send(
            method, target, None if body is None else json.dumps(body).encode(), headers, timeout_s
        )

    def _send(self, method: str, target: str, body: Any, headers: Mapping[str, str], timeout_s: float) -> Any:
        connection = self._open(timeout_s)
        try:
            with suppress(
                BrokenPipeError, ConnectionResetError
            ):  # refused before its end: the answer says why
                connection.request(method, self._prefix + target, body, {**self._headers, **headers})
            response = connection.getresponse()
            raw = response.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()
        return _answer(response, raw)

    def _open(self, timeout_s: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self._host, timeout=timeout_s)

    def _unreachable(self, error: Exception) -> Unreachable:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Unreachable(f"{self.url} can't be reached: {reason}. Is the gateway running?")


def _events(response: http.client.HTTPResponse) -> Iterator[tuple[str, Any, str | None]]:
    """Of server-sent events, those with data, which is JSON on one line."""
    fields: dict[str, str] = {}
    while line := response.readline(MAX_LINE_BYTES):
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
        elif not value:  # else it is a comment
            if "data" in fields:
                yield fields.get("event", "message"), json.loads(fields["data"]), fields.get("id")
            fields = {}


def segment(text: str) -> str:
    """A path segment, whatever it holds."""
    return quote(text, safe="")


def _answer(response: http.client.HTTPResponse, raw: bytes) -> Any:
    try:
        answer = json.loads(raw) if raw else None
    except ValueError:
        answer = None
    if response.status == http.HTTPStatus.NO_CONTENT or (response.status < 300 and answer is not None):
        return answer
    body: dict[str, Any] = answer if isinstance(answer, dict) else {}
    inner = body.get("error")
    error: dict[str, Any] = inner if isinstance(inner, dict) else body
    code = str(error["code"]) if error.get("code") else None
    raise Refused(_sentence(response, error), response.status, code, _headers(response))


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def _sentence(response: http.client.HTTPResponse, error: Mapping[str, Any]) -> str:
    """Of OpenAI's error, or problem details, or neither."""
    message = error.get("message") or error.get("detail") or f"the gateway answered {response.status}"
    facts = [str(response.status), *([str(error["code"])] if error.get("code") else [])]
    request = response.headers.get("x-request-id")
    if request and response.status >= 500:
        facts.append(f"request {request}")
    return f"{message} ({', '.join(facts)})"
