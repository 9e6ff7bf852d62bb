"""Prompts that no cache has seen: words drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from deploy.bench.load import Ask

WORDS = (
    "river copper window garden letter winter engine market silver bridge candle planet summer "
    "forest pocket basket carpet castle coffee corner cotton dinner doctor father flower ginger "
    "hammer island jacket kettle ladder lemon magnet marble mirror needle orange paper pepper pillow "
    "pencil rabbit saddle school shadow spider stone street sugar table ticket tunnel valley violin "
    "wagon water whale wheel wooden yellow"
)


def words(seed: object, count: int) -> str:
    """About one token each."""
    dice = random.Random(str(seed))  # noqa: S311 - prompts, not secrets
    vocabulary = WORDS.split()
    return " ".join(dice.choice(vocabulary) for _ in range(count))


def asks(
    models: Sequence[str],
    count: int,
    seed: object,
    *,
    num_words: int = 60,
    max_tokens: int = 64,
    system: str = "",
    tenant: str = "",
) -> list[Ask]:
    """`count` requests over the models in turn."""
    return [
        Ask(models[i % len(models)], words((seed, i), num_words), max_tokens, system, tenant)
        for i in range(count)
    ]
