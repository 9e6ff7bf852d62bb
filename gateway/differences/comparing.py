"""Two versions' reports beside each other. Pure: it looks nothing up."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from adapters.proof import ModuleFigures
from gateway.differences.schemas import AnswerDiff, DiffOut, FieldDiff, Group, ModuleDiff
from gateway.proofs.acceptance import Answered
from gateway.proofs.facts import Facts
from gateway.proofs.schemas import ProofOut, WeightsProof

DEEPEST: Final = 8
"""Levels of a config's field that are told."""

Diff = TypeVar("Diff", FieldDiff, ModuleDiff, AnswerDiff)


def compare(old: ProofOut, new: ProofOut, *, same_content: bool) -> DiffOut:
    """Of two versions of one adapter."""
    proofs = _on_common_weights(old, new)
    fields = [
        *_fields("config", _config(old.facts), _config(new.facts)),
        *_fields("weights", _weights(old.facts), _weights(new.facts)),
        *_fields("size", _sizes(old.facts), _sizes(new.facts)),
        *_fields("proof", _checks(proofs[0]), _checks(proofs[1])),
    ]
    return DiffOut(
        id=f"{old.id}..{new.id}",
        adapter=old.adapter,
        old=old.version,
        new=new.version,
        same_content=same_content,
        without_report=[each.version for each in (old, new) if each.facts is None],
        fields=_changed_first(fields),
        modules=_changed_first(_modules(old.facts, new.facts)),
        answers=_changed_first(_answers((old, proofs[0]), (new, proofs[1]))),
    )


def _changed_first(found: Iterable[Diff]) -> list[Diff]:
    return sorted(found, key=lambda each: not each.changed)  # stable: else in their own order


def _fields(group: Group, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> list[FieldDiff]:
    """None: nobody wrote it down, and then there is nothing to compare."""
    if old is None or new is None:
        return []
    names = [*old, *(name for name in new if name not in old)]
    return [
        FieldDiff(
            group=group,
            name=name,
            changed=old.get(name) != new.get(name),
            old=old.get(name),
            new=new.get(name),
        )
        for name in names
    ]


def _config(facts: Facts | None) -> dict[str, Any] | None:
    """As the file has it; what is alike whatever its order (target modules) in one order."""
    if facts is None or facts.config is None:
        return None
    found = {str(_telling(name)): _telling(value) for name, value in json.loads(facts.config).items()}
    targets = found.get("target_modules")
    if isinstance(targets, list):
        found["target_modules"] = sorted(targets, key=str)
    return found


def _telling(value: Any, depth: int = DEEPEST) -> Any:
    """What every JSON can carry: neither infinity, which `1e999` is read as, nor half of a character, nor
    anything without a bottom."""
    match value:
        case list() | dict() if not depth:
            return "…"
        case float() if not math.isfinite(value):
            return str(value)
        case str():
            return value.encode("utf-8", "replace").decode("utf-8")
        case list():
            return [_telling(each, depth - 1) for each in value]
        case dict():
            return {str(_telling(name)): _telling(each, depth - 1) for name, each in value.items()}
        case _:
            return value


def _weights(facts: Facts | None) -> dict[str, Any] | None:
    if facts is None:
        return None
    return {
        "ranks": facts.ranks,
        "scales": sorted({module.scale for module in facts.modules}),
        "targets": list(facts.matched),
        "layers": len({module.layer for module in facts.modules}),
        "modules": len(facts.modules),
        "parameters": facts.num_parameters,
        "largest": facts.values.largest,
        "delta_bound": facts.values.delta_bound,
    }


def _sizes(facts: Facts | None) -> dict[str, Any] | None:
    """In bytes."""
    if facts is None:
        return None
    tiers: dict[str, int] = msgspec.to_builtins(facts.bytes_by_tier)
    return tiers | {file.name: file.bytes for file in facts.files}


def _on_common_weights(old: ProofOut, new: ProofOut) -> tuple[WeightsProof | None, WeightsProof | None]:
    """The latest of each on weights that both were proved on."""
    for proof in new.proofs:
        for other in old.proofs:
            if other.base_digest == proof.base_digest:
                return other, proof
    return (old.proofs[0] if old.proofs else None), (new.proofs[0] if new.proofs else None)


def _checks(proof: WeightsProof | None) -> dict[str, Any] | None:
    """Figures where there are such, else whether it passed."""
    if proof is None:
        return None
    found: dict[str, Any] = {"passed": proof.passed}
    for check in proof.checks:
        found[check.name] = check.passed if check.figure is None else _telling(check.figure)
    return found


def _modules(old: Facts | None, new: Facts | None) -> list[ModuleDiff]:
    if old is None or new is None:
        return []
    before, after = _by_place(old), _by_place(new)
    places = [*before, *(place for place in after if place not in before)]
    return [
        ModuleDiff(
            layer=place[0],
            site=place[1],
            changed=before.get(place) != after.get(place),
            old=before.get(place),
            new=after.get(place),
        )
        for place in sorted(places, key=lambda place: place[0])
    ]


def _by_place(facts: Facts) -> dict[tuple[int, str], ModuleFigures]:
    return {(module.layer, module.site): module for module in facts.modules}


Side = tuple[ProofOut, WeightsProof | None]


def _answers(old: Side, new: Side) -> list[AnswerDiff]:
    before, after = _by_input(old), _by_input(new)
    inputs = [*before, *(each for each in after if each not in before)]
    return [
        AnswerDiff(
            input=json.loads(each),
            changed=before.get(each) != after.get(each),
            old=before.get(each),
            new=after.get(each),
        )
        for each in inputs
    ]


def _by_input(side: Side) -> dict[str, Answered | None]:
    """What each prompt was answered with; prompts beyond the last answer were not asked."""
    report, proof = side
    if report.acceptance is None:
        return {}
    result = None if proof is None else proof.acceptance
    answers: list[Answered] = [] if result is None else result.answers
    return {
        json.dumps(_telling(prompt.input), sort_keys=True): answers[number] if number < len(answers) else None
        for number, prompt in enumerate(report.acceptance.prompts)
    }
