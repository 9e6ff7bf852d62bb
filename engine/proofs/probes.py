"""What proofs have the model read: a few short texts, and a long one of any length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapters.prompt import PromptEncoder

PROBE_TOKENS: Final = 16
MOST_TOKENS: Final = 65_536
TEXTS: Final = (
    "I was charged twice for my order and nobody answers. What should I do now, please?",
    "The capital of France is Paris, and the capital of Italy is Rome. People who live there",
    "def add(a, b):\n    return a + b\n\nprint(add(2, 3))  # prints 5, then 1. flour 2. sugar",
)
"""A customer, a fact and a piece of code, each of at least `PROBE_TOKENS` tokens."""
PASSAGE: Final = Path(__file__).parents[1] / "model" / "calibration.txt"
"""Prose, talk, figures, code, a list and other scripts."""


@dataclass(frozen=True, slots=True)
class Probes:
    prompts: Sequence[Sequence[int]]
    text: Sequence[int]

    @classmethod
    def of(cls, encoder: PromptEncoder) -> Probes:
        """Takes some milliseconds, in which it holds up its caller."""
        prompts = [encoder.encode_text(text, MOST_TOKENS)[:PROBE_TOKENS] for text in TEXTS]
        return cls(prompts, encoder.encode_text(PASSAGE.read_text(), MOST_TOKENS))

    def passage(self, num_tokens: int) -> list[int]:
        """So many tokens; a long one repeats itself."""
        text = list(self.text)
        return (text * (num_tokens // len(text) + 1))[:num_tokens]
