"""The automaton against its twin, Python's own `re`."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.base import SITES, module_name
from adapters.patterns import MAX_PATTERN_CHARS, Budget, UnsafePattern, compile_pattern

NAMES = [module_name(layer, site) for layer in (0, 1, 10, 29) for site in SITES]
TEXTS = [*NAMES, "", "q_proj", "model", "layers.1", "a", "aaa", "ab.ab", "x-y z"]

PATTERNS = [
    "q_proj",
    ".*",
    "",
    r"model\.layers\.\d+\.self_attn\.(q|k|v|o)_proj",
    r".*\.(?:q_proj|v_proj)",
    r"^model\.layers\.(?:1|10)\..*$",
    r"(?:.*?(?:self_attn|mlp).*?(?:q_proj|down_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\.(?:mlp)\.(?:up_proj))",
    r"[^.]+\.[^.]+\.[0-9]\..*",
    r"(?P<block>model)\.layers\.[12]?\d\..+_proj",
    r".{10,30}",
    r"[]a]+",
    r"[a-c-]*",
    r"[\w.]+\B",
    r"a{2,}",
    r"(a|ab)(\.ab|b\.ab)?",
    r"\Amodel.*\Z",
    r"(|q_proj)",
    r"x\-y\ z",
    r".*layers\.(0|[1-9]\d?)\.(?=)?".replace("(?=)?", ""),
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_written_patterns(pattern: str) -> None:
    whole = compile_pattern(pattern, Budget())
    below = compile_pattern(pattern, Budget(), below=True)
    for text in TEXTS:
        assert whole(text) == (re.fullmatch(pattern, text) is not None), text
        assert below(text) == (re.match(rf"(.*\.)?({pattern})$", text) is not None), text


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    quantifier = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?"])
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, quantifier).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    )


GROWN = st.recursive(
    st.sampled_from([*"ab.", r"\.", "[ab]", "[^a]", r"\d", r"\w", r"a\b"]), _grown, max_leaves=8
)


@settings(max_examples=300, deadline=None)
@given(pattern=GROWN, texts=st.lists(st.text(alphabet="ab.1", max_size=9), min_size=1, max_size=8))
def test_grown_patterns(pattern: str, texts: list[str]) -> None:
    test = compile_pattern(pattern, Budget())
    for text in texts:
        assert test(text) == (re.fullmatch(pattern, text) is not None)


@pytest.mark.parametrize(
    "pattern",
    [
        *("(?=x)", "(?<!x)y", "(?i)x", r"(a)\1", "a**", "a*+", "*a", "^*", "a{2,1}", "a{5000}", "a{"),
        *("[a", "(a", "a)", "\\", r"\q", "[z-a]", r"[\d-z]", r"[a-\w]", r"é\é"),
        "(" * 50 + ")" * 50,
        "a" * (MAX_PATTERN_CHARS + 1),
    ],
)
def test_refused(pattern: str) -> None:
    with pytest.raises(UnsafePattern):
        compile_pattern(pattern, Budget())


def test_all_patterns_share_one_budget() -> None:
    budget = Budget(left=2_000)
    assert not compile_pattern("(.*a|.*b)*c", budget)(NAMES[0])
    assert budget.left < 2_000
    budget.left = 10
    with pytest.raises(UnsafePattern, match="too expensive"):
        compile_pattern("(.*a|.*b)*c", budget)(NAMES[0])
