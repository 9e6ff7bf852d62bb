"""Which requests share an answer: those that differ in nothing that could matter."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.wire import (
    ChatRequest,
    CompletionRequest,
    InferenceRequest,
    Message,
    StreamOptions,
    TextFormat,
    TextPart,
    decode_chat,
)
from gateway.catalog.resolved import Resolved, ResolvedAdapter
from gateway.ids import uuid7
from gateway.inference.call import Asked, Endpoint
from gateway.inference.response_cache_key import (
    NO_EFFECT,
    base_digest_of,
    cache_key,
    canonical,
    is_repeatable,
)
from gateway.principal import CacheMode, CachePolicy, Limits, Principal, Scope, TenantId
from gateway.replicas.driver import ReplicaView
from gateway.replicas.registry import Replica
from tests.gateway.inference.conftest import DATA_KEYS

TENANT = TenantId(uuid4())
POLICY = CachePolicy(CacheMode.GREEDY, epoch=1, age_s=60)
CHAT = ChatRequest(model="m", messages=[Message(role="user", content="x")], temperature=0.0)
COMPLETION = CompletionRequest(model="m", prompt="x", temperature=0.0)

OTHER_VALUES: dict[str, list[Any]] = {
    "model": ["other"],
    "max_tokens": [1, 2],
    "max_completion_tokens": [1, 2],
    "temperature": [None, 0.5],
    "top_p": [0.5, 0.6],
    "top_k": [0, 1],
    "min_p": [0.1, 0.2],
    "n": [1, 2],
    "seed": [0, 1],
    "stop": ["a", ["a"], ["a", "b"], ["b", "a"]],
    "stop_token_ids": [[1], [2]],
    "presence_penalty": [0.0, 1.0],
    "frequency_penalty": [0.0, 1.0],
    "repetition_penalty": [1.0, 1.1],
    "logit_bias": [{"1": 1.0}, {"2": 1.0}, {"1": 2.0}],
    "min_tokens": [0, 1],
    "ignore_eos": [False, True],
    "return_token_ids": [False, True],
    "stream": [False, True],
    "stream_options": [StreamOptions(), StreamOptions(include_usage=True)],
    "user": ["a", "b"],
    "messages": [
        [Message(role="user", content="y")],
        [Message(role="system", content="x")],
        [Message(role="user", content="x", name="n")],
        [Message(role="user", content=[TextPart(text="x")])],
        [Message(role="user", content="x"), Message(role="user", content="x")],
    ],
    "logprobs": [True, 1, 2],
    "top_logprobs": [0, 1],
    "metadata": [{"a": "b"}, {"a": "c"}],
    "response_format": [TextFormat()],
    "prompt": ["y", ["x"], [1], [1, 2]],
    "echo": [False, True],
}
"""Other values of each field than the ones above. A new field of the wire has to be entered here."""


def asked(request: InferenceRequest, **more: Any) -> Asked:
    principal = Principal(TENANT, "acme", "k", frozenset({Scope.INFERENCE}), Limits(), Limits(), "salt", 1)
    known: dict[str, Any] = {
        "request_id": uuid7(),
        "client_request_id": None,
        "endpoint": Endpoint.CHAT if isinstance(request, ChatRequest) else Endpoint.COMPLETIONS,
        "principal": principal,
        "body": b"",
        "request": request,
        "resolved": Resolved("m", "base", None),
        "arrived": 0.0,
    }
    return Asked(**{**known, **more})


def name(given: Asked, policy: CachePolicy = POLICY, digest: str = "d" * 64) -> str:
    return cache_key(DATA_KEYS, given, policy, digest).name


@pytest.mark.parametrize("request_", [CHAT, COMPLETION])
def test_each_field_is_in_the_name_unless_it_has_no_effect(request_: InferenceRequest) -> None:
    for field in request_.__struct_fields__:
        variants = [msgspec.structs.replace(request_, **{field: value}) for value in OTHER_VALUES[field]]
        names = [name(asked(variant)) for variant in (request_, *variants)]
        if field in NO_EFFECT:
            assert len(set(names)) == 1, field
        else:
            assert len(set(names)) == len(names), field


def test_a_field_of_a_later_release_changes_every_name() -> None:
    later: Any = msgspec.defstruct(
        "Later", [("thinking", bool | None, None)], bases=(ChatRequest,), frozen=True, kw_only=True
    )
    fields = {field: getattr(CHAT, field) for field in CHAT.__struct_fields__}
    with_default, with_value = later(**fields), later(**fields, thinking=True)
    assert len({canonical(each) for each in (CHAT, with_default, with_value)}) == 3


def test_what_is_not_in_the_body_is_in_the_name() -> None:
    base = asked(CHAT)
    adapter = ResolvedAdapter("a", 1, "a" * 64, TENANT)
    others = [
        name(replace(base, endpoint=Endpoint.COMPLETIONS)),
        name(replace(base, principal=replace(base.principal, tenant=TenantId(uuid4())))),
        name(replace(base, resolved=Resolved("m", "base", adapter))),
        name(replace(base, resolved=Resolved("m", "base", replace(adapter, artefact="b" * 64)))),
        name(replace(base, resolved=Resolved("m", "other", None))),
        name(base, digest="e" * 64),
        name(base, policy=replace(POLICY, epoch=2)),
    ]
    assert len({name(base), *others}) == len(others) + 1


def test_what_differs_from_request_to_request_is_not() -> None:
    base = asked(CHAT)
    assert name(base) == name(asked(CHAT, client_request_id="x", body=b"{}", arrived=5.0))
    other_key = replace(base.principal, key_id="k2", epoch=9, key_limits=Limits(5))
    assert name(base) == name(replace(base, principal=other_key))


@given(st.permutations(["model", "messages", "temperature", "logit_bias"]), st.sampled_from([None, 2]))
def test_how_a_body_is_written_makes_no_difference(order: list[str], indent: int | None) -> None:
    fields: dict[str, Any] = {
        "model": "m",
        "messages": [{"content": "é", "role": "user"}],
        "temperature": 0,
        "logit_bias": {"2": 1, "1": 2.0},
    }
    plain = decode_chat(json.dumps({**fields, "seed": None, "temperature": 0.0}).encode())
    written = json.dumps(
        {field: fields[field] for field in order}, indent=indent, ensure_ascii=indent is None
    )
    assert canonical(decode_chat(written.encode())) == canonical(plain)


@pytest.mark.parametrize(
    ("fields", "greedy", "seeded"),
    [
        ({"temperature": 0.0}, True, True),
        ({"temperature": 0.0, "seed": 1}, True, True),
        ({"temperature": None}, False, False),  # the default is 1
        ({"temperature": 1e-9}, False, False),
        ({"temperature": None, "seed": 0}, False, True),
        ({"temperature": 1.0, "seed": 7, "n": 4}, False, True),
        ({"temperature": 0.0, "n": 4}, True, True),
    ],
)
def test_only_what_repeats_is_kept(fields: dict[str, Any], greedy: bool, seeded: bool) -> None:
    request = msgspec.structs.replace(CHAT, **fields)
    assert is_repeatable(request, CacheMode.GREEDY) is greedy
    assert is_repeatable(request, CacheMode.SEEDED) is seeded


@pytest.mark.parametrize(
    ("digests", "found"),
    [(["d"], "d"), (["d", "d"], "d"), (["d", "e"], None), ([None], None), (["d", None], None), ([], None)],
)
def test_the_base_is_what_all_healthy_replicas_hold(digests: list[str | None], found: str | None) -> None:
    never_asked: Any = None
    replicas = [
        Replica(f"r{number}", never_asked, healthy=True, view=ReplicaView(base_digest=digest))
        for number, digest in enumerate(digests)
    ]
    ill = Replica("ill", never_asked, view=ReplicaView(base_digest="x"))
    assert base_digest_of([*replicas, ill]) == found
