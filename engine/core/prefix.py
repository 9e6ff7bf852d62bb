"""Names of KV blocks: a hash chain, so that a block's name says everything its contents depend on.

root  = H("root", base digest, artefact or none, tenant, salt)
block = H("block", parent name, token ids of the block)

H is BLAKE2b with 256 bits over fields that are each tagged and length-prefixed, under a versioned domain. So
two different sets of fields can't be written as the same bytes (a base request whose salt is an adapter's id,
say, or a tenant and salt that are cut elsewhere), and equal names mean equal contents, as far as BLAKE2b can
be trusted.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NewType

BlockKey = NewType("BlockKey", bytes)

_DOMAIN: Final = b"motet-kv-v1"
_DIGEST_BYTES: Final = 32


def root_key(base_digest: str, artefact: str | None, tenant: str, salt: str) -> BlockKey:
    """The name of the empty prefix: who may share KV with whom. `artefact` is None for the base itself."""
    adapter = _field(b"n", b"") if artefact is None else _field(b"a", artefact.encode())
    return _name(
        b"root",
        _field(b"b", base_digest.encode()),
        adapter,
        _field(b"t", tenant.encode()),
        _field(b"s", salt.encode()),
    )


def extend_key(parent: BlockKey, tokens: Sequence[int]) -> BlockKey:
    """The name of the block that holds `tokens` after the prefix `parent` names."""
    return _name(b"block", _field(b"p", parent), _field(b"k", struct.pack(f"<{len(tokens)}I", *tokens)))


def _name(kind: bytes, *fields: bytes) -> BlockKey:
    return BlockKey(
        blake2b(_field(b"d", kind) + b"".join(fields), digest_size=_DIGEST_BYTES, person=_DOMAIN).digest()
    )


def _field(tag: bytes, value: bytes) -> bytes:
    return tag + struct.pack("<Q", len(value)) + value
