"""Two versions beside each other: what changed, and what nobody can know."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from adapters.proof import ModuleFigures
from gateway.differences.comparing import compare
from gateway.differences.schemas import DiffOut
from gateway.proofs.acceptance import Acceptance, AcceptanceResult, Answered, Prompt
from gateway.proofs.facts import Facts, FileFacts, TierBytes, ValueFacts
from gateway.proofs.schemas import ProofOut, WeightsProof
from gateway.replicas.driver import Check

NOW = datetime(2026, 11, 30, tzinfo=UTC)
CONFIG: dict[str, Any] = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]}


def module(layer: int, site: str, rank: int, scale: float = 2.0) -> ModuleFigures:
    return ModuleFigures(layer, site, rank, scale, 1.0, 0.5, 1.0, 0.1)


@dataclass
class Made:
    """A version's report, of parts that a test may change."""

    number: int
    config: str | None = field(default_factory=lambda: json.dumps(CONFIG))
    modules: list[ModuleFigures] = field(default_factory=lambda: [module(0, "q_proj", 8)])
    kl: float = 0.4
    answers: list[Answered] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)
    digest: str = "a" * 64
    known: bool = True

    def report(self) -> ProofOut:
        facts = Facts(
            files=[FileFacts("adapter_config.json", 100)],
            num_parameters=sum(each.rank for each in self.modules) * 64,
            ranks=sorted({each.rank for each in self.modules}),
            matched={"q_proj": 1},
            unmatched=[],
            untouched=[],
            bytes_by_tier=TierBytes(1, 1, 1, 1),
            values=ValueFacts(1, 0, 0.1, 1.0),
            modules=self.modules,
            config=self.config,
        )
        accepted = None
        if self.prompts:
            accepted = AcceptanceResult(True, 1.0, 1.0, len(self.prompts), self.answers)
        proof = WeightsProof(
            base_digest=self.digest,
            passed=True,
            reason=None,
            longest=False,
            checks=[Check("differs", True, self.kl, 0.0001), Check("loads", True)],
            acceptance=accepted,
            load_ms=float(self.number),
            tier="store",
            replica_ms=1.0,
            total_ms=1.0,
            proved_at=NOW,
        )
        return ProofOut(
            id=f"pirate@{self.number}",
            adapter="pirate",
            version=self.number,
            state="ready",
            reason=None,
            base="base",
            uploaded_at=NOW,
            ready_at=NOW,
            facts=facts if self.known else None,
            acceptance=Acceptance(self.prompts) if self.prompts else None,
            proofs=[proof],
            waiting=[],
        )


def diff(old: Made, new: Made) -> DiffOut:
    return compare(old.report(), new.report(), same_content=False)


def changed(found: DiffOut) -> dict[str, tuple[Any, Any]]:
    return {each.name: (each.old, each.new) for each in found.fields if each.changed}


def test_what_changed_comes_first() -> None:
    config = json.dumps({**CONFIG, "target_modules": ["v_proj", "q_proj"], "r": 16, "use_rslora": True})
    new = Made(2, config, [module(0, "q_proj", 16, 1.0), module(0, "v_proj", 8)], kl=0.6)
    found = diff(Made(1, modules=[module(0, "k_proj", 8), module(0, "q_proj", 8)]), new)
    assert [each.changed for each in found.fields] == sorted(
        (each.changed for each in found.fields), reverse=True
    )
    assert changed(found) == {
        "r": (8, 16),
        "use_rslora": (None, True),
        "ranks": ([8], [8, 16]),
        "scales": ([2.0], [1.0, 2.0]),
        "parameters": (1024, 1536),
        "differs": (0.4, 0.6),
    }
    assert {each.name for each in found.fields} >= {"lora_alpha", "target_modules", "loads", "store"}
    assert [(each.site, each.old is None, each.new is None) for each in found.modules] == [
        ("k_proj", False, True),
        ("q_proj", False, False),
        ("v_proj", True, False),
    ]
    alike = diff(Made(1), Made(2))
    assert changed(alike) == {}  # how long a load took is no difference
    assert [each.changed for each in alike.modules] == [False]


def test_answers_stand_beside_each_other_by_their_prompts() -> None:
    hello, bye = Prompt("Hello", answer="Hi"), Prompt("Bye", must_match="long")
    old = Made(
        1, prompts=[hello, bye], answers=[Answered(True, "Hi", "Hi"), Answered(True, "So long", "long")]
    )
    new = Made(2, prompts=[bye, hello], answers=[Answered(True, "As long", "long")])
    found = diff(old, new)
    assert [(each.input, each.changed) for each in found.answers] == [("Hello", True), ("Bye", True)]
    assert found.answers[0].new is None  # it was not asked
    same = diff(old, Made(2, prompts=[hello, bye], answers=old.answers))
    assert not any(each.changed for each in same.answers)


def test_what_nobody_wrote_down_is_no_difference() -> None:
    found = diff(Made(1, known=False), Made(2))
    assert found.without_report == [1]
    assert {each.group for each in found.fields} == {"proof"}
    assert found.modules == []
    assert "config" not in {each.group for each in diff(Made(1, config=None), Made(2)).fields}


def test_proofs_are_compared_on_weights_that_both_know() -> None:
    """A moved base has proofs of several weights."""
    old, new = Made(1, digest="b" * 64).report(), Made(2).report()
    older = msgspec.structs.replace(old.proofs[0], base_digest="a" * 64, checks=[Check("differs", True, 0.1)])
    both = msgspec.structs.replace(old, proofs=[*old.proofs, older])
    assert changed(compare(both, new, same_content=False)) == {"differs": (0.1, 0.4), "loads": (None, True)}


def test_whatever_a_config_holds_can_be_told() -> None:
    deep = "[" * 60 + "]" * 60
    config = f'{{"r": 8, "auto_mapping": {deep}, "revision": "\\ud800", "lora_dropout": 1e999, "\\ud801": 1}}'
    found = diff(Made(1, config), Made(2, config))
    told = json.loads(msgspec.json.encode(found))
    fields = {each["name"]: each["old"] for each in told["fields"]}
    assert (fields["revision"], fields["lora_dropout"], fields["?"]) == ("?", "inf", 1)
    assert "…" in json.dumps(fields["auto_mapping"], ensure_ascii=False)
