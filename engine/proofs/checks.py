"""The criteria, each with its figure and its bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine.proofs.judge import Told, distance, divergence
from engine.proofs.report import Check, CheckName

LEAST_DIVERGENCE: Final = 1e-6
DIVERGENCE_FACTOR: Final = 3.0
"""Over what the base's own rounding moves its answers: that much could be rounding."""
LEAST_ERROR: Final = 1e-4
ERROR_FACTOR: Final = 2.5
"""Over the base's own error. Sound adapters of four kinds had 1.2 to 1.8 (docs/decisions/0082)."""
MOST_UNREST: Final = 64.0
"""Under an adapter that moves the model far, rounding moves answers further than the base's. How much further
is computed (`shaken` in `engine.model.dense`); past so many times nothing could be told any more."""
MOST_INSIDE: Final = 1e18
"""The square of a larger number is more than float32 and bfloat16 hold, once it is summed."""


@dataclass(frozen=True, slots=True)
class BaseSide:
    """What the base is served as, and how far that lies from its own dense twin."""

    prompts: Sequence[Sequence[int]]
    served: Sequence[Told]
    dense: Sequence[Sequence[float]]
    divergence: float
    error: float

    @classmethod
    def of(
        cls, prompts: Sequence[Sequence[int]], served: Sequence[Told], dense: Sequence[Sequence[float]]
    ) -> BaseSide:
        twin = named(served, dense)
        return cls(prompts, served, dense, divergence(twin, served), distance(served, twin))


def named(served: Sequence[Told], dense: Sequence[Sequence[float]]) -> list[Told]:
    """The twin's log-probabilities of the tokens that were served, in their order."""
    return [dict(zip(here, there, strict=True)) for here, there in zip(served, dense, strict=True)]


def differs_check(base: BaseSide, served: Sequence[Told]) -> Check:
    figure = divergence(base.served, served)
    bound = max(LEAST_DIVERGENCE, DIVERGENCE_FACTOR * base.divergence)
    passed = figure >= bound
    said = "differ" if passed else "do not differ"
    message = (
        f"Over {len(served)} tokens its answers {said} from the base's: a KL divergence of at least "
        f"{figure:.3g}, where {bound:.3g} could be rounding."
    )
    return Check(CheckName.DIFFERS, passed, figure, bound, message)


def unrest(
    served: Sequence[Told], dense: Sequence[Sequence[float]], shaken: Sequence[Sequence[float]]
) -> float:
    """How far log-probabilities move when each product is moved by about what rounding moves it."""
    return distance(named(served, dense), named(served, shaken))


def dense_check(
    base: BaseSide, served: Sequence[Told], dense: Sequence[Sequence[float]], unrests: float = 1.0
) -> Check:
    """`unrests`: the adapter's unrest in that of the base."""
    figure = distance(served, named(served, dense))
    bound = max(LEAST_ERROR, ERROR_FACTOR * base.error * min(max(1.0, unrests), MOST_UNREST))
    passed = figure <= bound  # False for NaN, too
    said = "are" if passed else "are not"
    message = (
        f"Served log-probabilities of {len(served)} tokens {said} those of a dense float32 W + s·BA: "
        f"in the median they lie {figure:.3g} from them, the base's {base.error:.3g} from its own."
    )
    return Check(CheckName.DENSE, passed, figure, bound, message)


def finite_check(ceiling: float) -> Check:
    passed = ceiling <= MOST_INSIDE
    said = "on no input of any length is" if passed else "norms do not exclude that on some input"
    message = f"By norms, {said} a number inside larger than {ceiling if passed else MOST_INSIDE:.3g}."
    return Check(CheckName.FINITE, passed, ceiling, MOST_INSIDE, message)


def plain(name: CheckName, *, passed: bool, message: str) -> Check:
    return Check(name, passed, None, None, message)
