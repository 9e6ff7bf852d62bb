"""Changes as they happen, over HTTP: who hears of them, when a stream ends, and what bounds it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest

from gateway.command.api import Api
from gateway.command.following import followed
from tests.rig.rig import EMAIL, PASSWORD, Rig
from tests.rig.roles import add_member

Maker = Callable[..., dict[str, Any]]
Event = tuple[str, dict[str, Any]]
PATIENCE_S = 60


@contextmanager
def stream(stack: Rig, path: str, client: httpx.Client) -> Iterator[Iterator[Event]]:
    """The events of one, after the first."""
    with client.stream("GET", path, headers={"accept": "text/event-stream"}, timeout=PATIENCE_S) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        events = parsed(answer)
        assert next(events)[0] == "begin"
        yield events


def parsed(answer: httpx.Response) -> Iterator[Event]:
    event = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            event = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield event, json.loads(line.removeprefix("data: "))


def until(events: Iterator[Event], wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    for event, data in events:
        if event == "change" and wanted(data):
            return data
    raise AssertionError("it ended before")


@contextmanager
def logged_in(stack: Rig) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stack.base_url, timeout=PATIENCE_S) as client:
        session = client.post("/api/v1/session", json={"email": EMAIL, "password": PASSWORD})
        client.headers["x-csrf-token"] = session.raise_for_status().json()["csrf_token"]
        yield client


def test_a_stream_tells_of_changes_and_ends_after_a_log_out_everywhere(stack: Rig, new_tenant: Maker) -> None:
    with logged_in(stack) as watching, logged_in(stack) as other:
        with watching.stream("GET", "/api/v1/changes") as answer:
            assert answer.headers["x-accel-buffering"] == "no"  # for nginx, which takes it away
        with stream(stack, "/api/v1/changes", watching) as events:
            made = new_tenant()
            change = until(events, lambda each: each["tenant"] == made["id"])
            assert (change["kind"], set(change)) == ("tenant", {"id", "kind", "tenant", "objects", "at"})
            assert other.delete("/api/v1/sessions").status_code == 204
            began = time.monotonic()
            rest = list(events)  # which ends
            assert time.monotonic() - began < 5
            assert rest[-1] == ("end", {"reason": "session_ended"})
        assert watching.get("/api/v1/changes").status_code == 401


def test_another_tenants_changes_never_appear(stack: Rig, admin: httpx.Client, new_tenant: Maker) -> None:
    mine, other = new_tenant(), new_tenant()
    member = add_member(admin, mine["id"], "viewer")
    with httpx.Client(base_url=stack.base_url, headers={"authorization": f"Bearer {member.token}"}) as client:
        assert client.get("/api/v1/changes").status_code == 403
        assert client.get(f"/api/v1/tenants/{other['id']}/changes").status_code == 404
        with stream(stack, f"/api/v1/tenants/{mine['id']}/changes", client) as events:
            for tenant in (other, mine):
                path = f"/api/v1/tenants/{tenant['id']}"
                admin.post(f"{path}/keys", json={"name": "a"}).raise_for_status()  # no viewer's business
                admin.patch(f"{path}/limits", json={"max_parallel": 5}).raise_for_status()
            heard = []
            for event, data in events:
                heard.append((event, data.get("kind"), data.get("tenant")))
                if data.get("kind") == "limits":
                    break
            assert {(kind, tenant) for _, kind, tenant in heard} <= {
                ("tenant", mine["id"]),
                ("limits", mine["id"]),
            }
            admin.delete(f"/api/v1/tenants/{mine['id']}/members/{member.id}").raise_for_status()
            assert list(events)[-1] == ("end", {"reason": "session_ended"})


def test_an_account_has_so_many_streams(stack: Rig, admin: httpx.Client, new_tenant: Maker) -> None:
    made = new_tenant()
    member = add_member(admin, made["id"], "viewer")
    path, headers = f"/api/v1/tenants/{made['id']}/changes", {"authorization": f"Bearer {member.token}"}
    with httpx.Client(base_url=stack.base_url, headers=headers) as client:
        with ExitStack() as opened:
            for _ in range(8):
                opened.enter_context(stream(stack, path, client))
            refused = client.get(path)
            assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
            assert int(refused.headers["retry-after"]) > 0
        deadline = time.monotonic() + PATIENCE_S
        while True:  # their places are free again once the gateway has heard that they are gone
            with client.stream("GET", path) as again:
                if again.status_code == 200:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_who_was_cut_off_goes_on_where_it_was(stack: Rig, admin: httpx.Client, new_tenant: Maker) -> None:
    with stack.admin() as client:
        with stream(stack, "/api/v1/changes", client) as events:
            made = new_tenant()
            place = until(events, lambda each: each["tenant"] == made["id"])["id"]
        admin.patch(f"/api/v1/tenants/{made['id']}/limits", json={"max_parallel": 5}).raise_for_status()
        given: list[tuple[dict[str, str], dict[str, str]]] = [
            ({"last-event-id": place}, {}),
            ({}, {"after": place}),
        ]
        for headers, params in given:
            with client.stream(
                "GET", "/api/v1/changes", headers=headers, params=params, timeout=PATIENCE_S
            ) as answer:
                events = parsed(answer)
                assert next(events)[1]["complete"] is True
                until(events, lambda each: (each["kind"], each["tenant"]) == ("limits", made["id"]))


def test_the_command_line_follows(stack: Rig, new_tenant: Maker) -> None:
    name = f"cli-{uuid4().hex[:8]}"
    timer = threading.Timer(1.0, lambda: new_tenant(name=name))
    timer.start()
    kinds = followed(Api(stack.base_url, stack.token), "/api/v1/changes")
    assert next(data for event, data in kinds if event == "change" and data["kind"] == "tenant")["tenant"]
    kinds.close()  # type: ignore[attr-defined]  # a generator
    timer.join()


@pytest.mark.parametrize("accept", ["application/json", "text/html"])
def test_only_a_stream_is_to_be_had(admin: httpx.Client, accept: str) -> None:
    assert admin.get("/api/v1/changes", headers={"accept": accept}).status_code == 406
