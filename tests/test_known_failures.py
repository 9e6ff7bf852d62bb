"""docs/decisions/0066: each known failure is held by tests that exist, argued, or called a gap."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "decisions" / "0066-known-failures-of-gateways.md"
NUMBERED = 38
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row[0] not in ("thread", "number")]


@cache
def names_in(path: Path) -> set[str]:
    tree = ast.walk(ast.parse(path.read_bytes()))
    return {node.name for node in tree if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def test_every_test_that_the_page_names_exists() -> None:
    named = TEST.findall(PAGE.read_text())
    assert len(named) > 150
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (TESTS / path).is_file() or name not in names_in(TESTS / path)
    ]
    assert missing == []


def test_every_row_is_held_argued_or_called_a_gap() -> None:
    assert all(len(row) == 3 for row in rows())
    bare = [
        row[0] for row in rows() if not TEST.search(row[2]) and not re.search(r"\*\*(argued|gap)\*\*", row[2])
    ]
    assert bare == []


def test_none_of_the_numbered_ones_is_missing() -> None:
    numbers = [int(row[0]) for row in rows() if row[0].isdigit()]
    assert numbers == list(range(1, NUMBERED + 1))
