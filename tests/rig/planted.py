"""Secrets of every kind that the platform is given, makes or keeps, known beforehand and sent through every
route in every place where one could be sent. What looks for them is `search.py`."""

from __future__ import annotations

import base64
import json
import re
import secrets as random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from uuid import uuid4

import httpx

from gateway.api_keys.authenticator import API_KEY
from tests.rig.fake_replica import WORD
from tests.rig.rig import AWAY, EMAIL, PASSWORD, Rig, TenantKey
from tests.rig.roles import add_member
from tests.rig.search import Answers

PROMPT = "the heron on the third weir"
LONG_FORM_ONLY = (
    "METRICS_TOKEN",
    "PEPPER_PREVIOUS",
    "DATA_KEY_PREVIOUS",
    "RECEIPT_KEY_PREVIOUS",
    "ENGINE_TOKEN_PREVIOUS",
    "REGISTRATION_TOKEN_PREVIOUS",
)
"""Settings that hold secrets, besides those that every rig has."""


@dataclass(frozen=True)
class Planted:
    """What must be found nowhere, by what it is. Of an API key, the part behind its public id."""

    secrets: dict[str, str | bytes]
    people: dict[str, dict[str, str]]  # headers by who sends them
    tenant: str
    key_id: str
    raw: tuple[str, ...]  # whole credentials, as a client would misplace them


def plant(rig: Rig, admin: httpx.Client) -> Planted:
    """Whatever the platform was started with, and one of each kind that it gives out or takes in."""
    owner = rig.tenant()
    never = API_KEY.mint().text
    cookie, csrf = _log_in(rig, EMAIL, PASSWORD)
    kept = {
        "API key": secret_part(owner.secret),
        "key that was never issued": secret_part(never),
        "session cookie": cookie,
        "CSRF token": csrf,
        "prompt": PROMPT,
        "answer": WORD * 2,
    }
    revoked = rig.key_of(admin, owner.tenant, name="revoked")
    admin.delete(f"/api/v1/tenants/{owner.tenant}/keys/{revoked.key_id}")
    secrets: dict[str, str | bytes] = {
        **kept,
        "revoked API key": secret_part(revoked.secret),
        **_of_the_platform(rig),
        **_rotated_key(rig, admin, owner),
        **_of_a_member(rig, admin, owner),
        **_of_a_webhook(admin, owner),
        **_of_replicas(admin, rig),
        **_of_receipts(rig, owner),
    }
    assert all(len(secret) > 8 for secret in secrets.values()), [n for n, s in secrets.items() if len(s) <= 8]
    people = {
        "nobody": {},
        "tenant": owner.headers,
        "revoked": revoked.headers,
        "stranger": {"authorization": f"Bearer {never}"},
        "operator": rig.admin_headers,
        "browser": {"cookie": f"motet_session={cookie}", "x-csrf-token": csrf},
        "confused": {"authorization": f"Basic {rig.token}", "x-api-key": owner.secret},
    }
    raw = (owner.secret, rig.token, cookie)
    return Planted(secrets, people, owner.tenant, owner.key_id, raw)


def _of_the_platform(rig: Rig) -> dict[str, str]:
    """What its processes were started with, by the name of the setting."""
    plan = rig.plan
    assert plan is not None
    urls = {
        "owner's database password": plan.database.owner,
        "application's database password": plan.database.app,
        "system's database password": plan.database.system,
        "Redis password": rig.redis_url,
    }
    return {
        "operator's token": secret_part(rig.token),
        "operator's password": PASSWORD,
        "pepper": plan.pepper,
        "engine_token": plan.engines.token,
        "oidc_providers": json.loads(rig.settings["OIDC_PROVIDERS"])[0]["client_secret"],
        **{name: unquote(urlsplit(url).password or "") for name, url in urls.items()},
        **{name.lower(): value for name, value in rig.settings.items() if _is_secret(name)},
    }


def _rotated_key(rig: Rig, admin: httpx.Client, owner: TenantKey) -> dict[str, str]:
    key = rig.key_of(admin, owner.tenant, name="rotated")
    told = _made(admin.post(f"/api/v1/tenants/{owner.tenant}/keys/{key.key_id}/rotate", json={}))
    return {"rotated API key": secret_part(told["secret"]), "the one before it": secret_part(key.secret)}


def _of_a_member(rig: Rig, admin: httpx.Client, owner: TenantKey) -> dict[str, str]:
    member, password = add_member(admin, owner.tenant, "tenant_admin"), random.token_urlsafe(24)
    path = f"/api/v1/tenants/{owner.tenant}/members/{member.id}/password"
    answer = admin.put(path, json={"password": password})
    assert answer.status_code in (200, 204), answer.text
    cookie, csrf = _log_in(rig, member.email, password)
    return {
        "member's token": secret_part(member.token),
        "member's password": password,
        "member's session cookie": cookie,
        "member's CSRF token": csrf,
    }


def _of_a_webhook(admin: httpx.Client, owner: TenantKey) -> dict[str, str | bytes]:
    """Its URL says who may post there, so the path is a secret too. The ping makes control try to."""
    webhooks, path = f"/api/v1/tenants/{owner.tenant}/webhooks", random.token_urlsafe(24)
    made = _made(admin.post(webhooks, json={"url": f"https://hooks.invalid/services/{path}"}))
    endpoint = f"{webhooks}/{made['endpoint']['id']}"
    rotated = _made(admin.post(f"{endpoint}/rotate", json={}))
    _made(admin.post(f"{endpoint}/ping"))
    before, now = (told["secret"].removeprefix("whsec_") for told in (made, rotated))
    return {
        "webhook's URL": path,
        "webhook's secret": now,
        "webhook's secret, its bytes": base64.b64decode(now),
        "webhook's secret before": before,
        "webhook's secret before, its bytes": base64.b64decode(before),
    }


def _of_replicas(admin: httpx.Client, rig: Rig) -> dict[str, str]:
    """Of two that nobody can reach: one that an operator adds, one that registers itself."""
    given, own = random.token_urlsafe(24), random.token_urlsafe(24)
    added = _made(admin.post("/api/v1/replicas", json={"url": "http://127.0.0.1:9/a", "token": given}))
    told = _made(admin.post(f"/api/v1/replicas/{added['id']}/token", json={}))
    registering = {"authorization": f"Bearer {rig.settings['REGISTRATION_TOKEN']}"}
    body = {"url": "http://127.0.0.1:9/b", "base_id": added["base_id"], "token": own}
    url = f"{rig.base_url}/api/v1/replica-registration"
    _made(httpx.put(url, json=body, headers=registering, timeout=60))
    return {"replica's token": given, "replica's new token": told["token"], "registered replica's token": own}


def _of_receipts(rig: Rig, owner: TenantKey) -> dict[str, str | bytes]:
    url = f"{rig.base_url}/v1/usage/receipt-keys"
    keys = _made(httpx.get(url, headers=owner.headers, timeout=60))["data"]
    found: dict[str, str | bytes] = {}
    for key in keys:
        name = "receipt key" if key["current"] else "receipt key before"
        found[name] = key["key"]
        found[f"{name}, its bytes"] = base64.urlsafe_b64decode(key["key"] + "=" * (-len(key["key"]) % 4))
    return found


def _log_in(rig: Rig, email: str, password: str) -> tuple[str, str]:
    """After a try with a wrong password."""
    url = f"{rig.base_url}/api/v1/session"
    httpx.post(url, json={"email": email, "password": password + "!"}, timeout=60)
    opened = httpx.post(url, json={"email": email, "password": password}, timeout=60)
    assert opened.status_code == 201, opened.text
    return opened.cookies["motet_session"], opened.json()["csrf_token"]


def _made(answer: httpx.Response) -> Any:
    assert answer.status_code in (200, 201, 202), answer.text
    return answer.json()


def secret_part(text: str) -> str:
    """Of an API key or token, what stands behind its public id."""
    return re.sub(r"^mta?_[a-z2-7]{12}_", "", text)


def _is_secret(name: str) -> bool:
    return name.endswith(("_TOKEN", "_KEY", "_PREVIOUS", "SECRET_ACCESS_KEY"))


def send_everywhere(rig: Rig, planted: Planted, *, everybody: bool) -> Answers:
    """Each operation of the document as each person, or only as the one whom it is for: as it is meant, and
    with a credential in its path, its query and its body."""
    answers = Answers()
    with httpx.Client(base_url=rig.base_url, timeout=60) as http:
        document = http.get("/openapi.json").json()
        for path, item in document["paths"].items():
            for method in (name for name in item if name in {"get", "post", "put", "patch", "delete"}):
                meant_for = "browser" if path.startswith("/api/") else "tenant"
                for name in planted.people if everybody else [meant_for]:
                    _send(http, method, path, planted.people[name], planted, answers)
        _make(http, planted, answers)
        _infer(http, rig, planted, answers)
    return answers


def _make(http: httpx.Client, planted: Planted, answers: Answers) -> None:
    """What succeeds, and leaves rows."""
    browser, tenant = planted.people["browser"], planted.people["tenant"]
    name = {"name": f"made-{uuid4().hex[:12]}"}
    answers.note(http.post("/api/v1/tenants", json=name, headers=browser))
    answers.note(http.post(f"/api/v1/tenants/{planted.tenant}/keys", json=name, headers=browser))
    answers.note(http.post("/v1/billing/exports", json={"month": "2026-01"}, headers=tenant))
    assert answers.statuses.get(201, 0) >= 2


def _send(
    http: httpx.Client,
    method: str,
    path: str,
    headers: Mapping[str, str],
    planted: Planted,
    answers: Answers,
) -> None:
    if method == "delete" and path in ("/api/v1/session", "/api/v1/sessions"):  # closed, it is no secret
        headers = {name: value for name, value in headers.items() if name != "cookie"}
    ids = {"tenant": planted.tenant, "key_id": "a" * 12, "number": "1", "version": "1", "provider": AWAY}
    if path.endswith(("/suspend", "/offboarding")):  # it is still needed
        ids["tenant"] = str(uuid4())
    meant = re.sub(r"\{(\w+)\}", lambda match: ids.get(match[1], "nobody"), path)
    answers.note(_answer(http, method, meant, headers=headers, json={} if method != "get" else None))
    raw = planted.raw[0]
    misplaced = re.sub(r"\{(\w+)\}", quote(raw), path)
    sent = frozenset(secret_part(each) for each in planted.raw)
    for body in ({"model": raw, "api_key": raw, "name": raw, "email": raw, "password": raw}, [raw]):
        content = json.dumps(body) if method != "get" else None
        typed = {**headers, "content-type": "application/json"}
        query = {"api_key": planted.raw[1], "after": raw, "month": raw, "limit": raw}
        answers.note(_answer(http, method, misplaced, params=query, headers=typed, content=content), sent)


def _answer(http: httpx.Client, method: str, url: str, **more: Any) -> httpx.Response:
    """The whole; of a feed of changes, which never ends, its first event."""
    with http.stream(method, url, **more) as answer:
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            answer.read()
            return answer
        begun = ""
        for piece in answer.iter_text():
            begun += piece
            if "\n\n" in begun:
                break
        return httpx.Response(answer.status_code, headers=answer.headers, text=begun, request=answer.request)


def _infer(http: httpx.Client, rig: Rig, planted: Planted, answers: Answers) -> None:
    """What succeeds, and what is kept of it: with a cache, with a key for retries, as a stream."""
    with rig.admin() as admin:
        caches = f"/api/v1/tenants/{planted.tenant}/caches"
        assert admin.patch(caches, json={"response_cache": "greedy"}).status_code == 200
    for stream in (False, True):
        for more in ({}, {"idempotency-key": uuid4().hex}):
            for _ in range(2):
                body = {
                    "model": rig.base_name,
                    "messages": [{"role": "user", "content": PROMPT}],
                    "max_tokens": 3,
                    "temperature": 0,
                    "stream": stream,
                }
                headers = {**planted.people["tenant"], **more}
                answer = http.post("/v1/chat/completions", json=body, headers=headers)
                assert answer.status_code == 200, answer.text
                answers.note(answer)
