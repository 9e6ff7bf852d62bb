"""Which requests have an answer that may be given again, and the name under which it is kept.

The name is an HMAC over all that an answer depends on: tenant, cache epoch, endpoint, weights of adapter and
base, and every field of the body but those in `NO_EFFECT`. A field that a later release adds is in it by
itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from msgspec import UNSET

from adapters.wire import DEFAULT_MAX_TOKENS, InferenceRequest
from gateway.answers.sealing import DataKeys, tagged
from gateway.inference.call import Asked
from gateway.principal import CacheMode, CachePolicy, TenantId
from gateway.replicas.replica import Replica

FORMAT = "response cache 1"
"""Moves when the meaning of a name does."""

NO_EFFECT = frozenset({"user", "metadata"})
"""Fields that change no byte of an answer: they are checked against their limits, and go nowhere."""

PURPOSE = "response cache name"


@dataclass(frozen=True, slots=True)
class CacheKey:
    """`base_digest`: of the replicas' base when the request came; an answer of another is not kept."""

    tenant: TenantId
    name: str
    base_digest: str
    age_s: int


def is_repeatable(request: InferenceRequest, mode: CacheMode) -> bool:
    """Whether the same request gives the same answer: greedy, or seeded where the tenant takes that for
    it."""
    if request.temperature == 0:
        return True
    return mode is CacheMode.SEEDED and request.seed is not None


def canonical(request: InferenceRequest, *, without: Iterable[str] = ()) -> bytes:
    """The request's fields as one text, however its body was written: absent is the default, keys of objects
    are sorted. `without` names fields that are left out."""
    left_out = frozenset(without)
    fields = {
        name: value
        for name in request.__struct_fields__
        if name not in left_out and (value := getattr(request, name)) is not UNSET
    }
    return msgspec.json.encode(fields, order="deterministic")


def base_digest_of(replicas: Iterable[Replica]) -> str | None:
    """What all healthy replicas hold; None while they differ, or one doesn't say (its driver can't know)."""
    digests = {replica.view.base_digest for replica in replicas if replica.healthy}
    return digests.pop() if len(digests) == 1 else None


def cache_key(keys: DataKeys, asked: Asked, policy: CachePolicy, base_digest: str) -> CacheKey:
    """Only for a request that is repeatable under its tenant's policy."""
    tenant, adapter = asked.principal.tenant, asked.resolved.adapter
    message = tagged(
        FORMAT,
        str(tenant),
        str(policy.epoch),
        asked.endpoint.value,
        adapter.artefact if adapter else "",
        asked.resolved.base_id,
        base_digest,
        str(DEFAULT_MAX_TOKENS),
        canonical(asked.request, without=NO_EFFECT),
    )
    name = keys.macs(PURPOSE, tenant, message)[0].hex()
    return CacheKey(tenant, name, base_digest, policy.age_s)
