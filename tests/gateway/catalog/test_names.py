import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.catalog.names import LIVE, ModelName, is_name, parse_model


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("pirate", ModelName("pirate", None, None, LIVE)),
        ("pirate@3", ModelName("pirate", None, 3, None)),
        ("pirate@canary", ModelName("pirate", None, None, "canary")),
        ("acme/pirate@12", ModelName("pirate", "acme", 12, None)),
        ("a.b_c-d", ModelName("a.b_c-d", None, None, LIVE)),
    ],
)
def test_parts_of_a_model_name(text: str, parsed: ModelName) -> None:
    assert parse_model(text) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "", "Pirate", "../x", "pirate@", "@3", "pirate@0", "pirate@03", "pirate@99999999999", "a/b/c",
        "pirate@1@2", "pirate ", "pirate\n", "-x", ".x", "a" * 64, "/x", "x/", "pi\u0433ate", "x@\u0663",
    ],
)  # fmt: skip
def test_what_can_not_name_a_model(text: str) -> None:
    assert parse_model(text) is None


@given(st.text(max_size=80))
def test_any_text_parses_or_does_not(text: str) -> None:
    parsed = parse_model(text)
    if parsed is not None:
        assert is_name(parsed.name)
        assert (parsed.version is None) != (parsed.alias is None)
