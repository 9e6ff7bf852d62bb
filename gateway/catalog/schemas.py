"""What the catalog's routes answer with."""

from __future__ import annotations

from typing import Literal

import msgspec


class ModelOut(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's model object; `parent` names the base of an adapter."""

    id: str
    object: Literal["model"] = "model"
    created: int  # Unix seconds
    owned_by: str
    parent: str | None


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[ModelOut]


class VersionOut(msgspec.Struct, frozen=True, kw_only=True):
    """One uploaded set of weights."""

    id: str  # what to write as `model`: name@number
    object: Literal["adapter.version"] = "adapter.version"
    adapter: str
    version: int
    state: str  # pending | ready | refused
    aliases: list[str]  # that point to this version
    base: str
    digest: str  # of the content: the same for the same config and tensors
    artefact: str  # what replicas and metrics know it by
    ranks: list[int]  # that occur in it, ascending
    targets: list[str]  # linear layers that it changes
    num_modules: int
    num_parameters: int
    bytes: int  # packed, as stored
    created_at: str  # RFC 3339


class VersionList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[VersionOut]
    has_more: bool
    next: str | None  # value of `after` for the next page


class AdapterOut(msgspec.Struct, frozen=True, kw_only=True):
    """A name, and the versions it stands for."""

    id: str  # the name
    object: Literal["adapter"] = "adapter"
    name: str
    base: str
    aliases: dict[str, int]  # alias → version; `live` is what the bare name answers with
    latest: int  # highest version number
    created_at: str


class AdapterList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[AdapterOut]
    has_more: bool
    next: str | None


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["adapter.deleted", "adapter.version.deleted"]
    deleted: bool = True
