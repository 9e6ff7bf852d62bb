"""Names of a request's blocks: each block of the prompt is hashed once, whatever n is."""

from __future__ import annotations

import pytest

from engine.core import request as module
from engine.core.prefix import BlockKey, extend_key
from engine.core.request import Request
from tests.engine.core.fakes import Ask, add

BLOCK = 4


def names(request: Request, tokens: list[int]) -> list[BlockKey]:
    """The slow way."""
    keys, parent = [], request.root
    for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
        parent = extend_key(parent, tokens[start : start + BLOCK])
        keys.append(parent)
    return keys


@pytest.mark.parametrize("length", [1, 3, 4, 8, 9])
def test_names_follow_the_tokens_across_the_end_of_the_prompt(length: int) -> None:
    request = Request(add("r", list(range(1, length + 1)), Ask(choices=2)), "base", 0, 0.0)
    first, second = request.sequences
    first.generated, second.generated = [50, 51, 52, 53, 54, 55, 56, 57], [60, 61, 62, 63, 64, 65, 66, 67]
    for sequence in (first, second, first):
        whole = names(request, [*request.prompt, *sequence.generated])
        for count in (0, 1, len(whole), 1):
            assert sequence.keys(count, BLOCK) == whole[:count]


def test_all_choices_share_the_hashes_of_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []

    def counted(parent: BlockKey, tokens: list[int]) -> BlockKey:
        hashed.append(len(tokens))
        return extend_key(parent, tokens)

    monkeypatch.setattr(module, "extend_key", counted)
    request = Request(add("r", [7] * 42, Ask(choices=8)), "base", 0, 0.0)
    assert len({tuple(sequence.keys(10, BLOCK)) for sequence in request.sequences}) == 1
    assert len(hashed) == 10
