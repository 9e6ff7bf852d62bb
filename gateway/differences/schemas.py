"""Wire types of differences."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from adapters.proof import ModuleFigures
from gateway.proofs.acceptance import Answered

Group = Literal["config", "weights", "size", "proof"]


class FieldDiff(msgspec.Struct, frozen=True, kw_only=True):
    """One thing of both; null: that version has none, or nobody wrote it down."""

    group: Group
    name: str
    changed: bool
    old: Any
    new: Any


class ModuleDiff(msgspec.Struct, frozen=True, kw_only=True):
    """One linear layer of one block; null: that version leaves it as the base has it."""

    layer: int
    site: str
    changed: bool
    old: ModuleFigures | None
    new: ModuleFigures | None


class AnswerDiff(msgspec.Struct, frozen=True, kw_only=True):
    """One acceptance prompt; null: that version was not asked it, or never had it."""

    input: Any  # a user's text, or the messages of a chat
    changed: bool
    old: Answered | None
    new: Answered | None


class DiffOut(msgspec.Struct, frozen=True, kw_only=True):
    """What changed comes first, in each of the three. Proof figures are of weights of the base on which both
    were proved, where there are such, else of each one's latest proof."""

    id: str  # what to write as `model`, twice: name@old..name@new
    object: Literal["adapter.diff"] = "adapter.diff"
    adapter: str
    old: int
    new: int
    same_content: bool  # config and tensors
    without_report: list[int]  # versions from before there were reports
    fields: list[FieldDiff]
    modules: list[ModuleDiff]
    answers: list[AnswerDiff]
