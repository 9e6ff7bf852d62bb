from __future__ import annotations

import json
import re

import pytest

from gateway.command.output import show, show_list

ROWS = [
    {
        "name": "a-name-" + "x" * 120,
        "scopes": ["inference", "usage:read"],
        "aliases": {"live": 3},
        "left": None,
    }
]
COLUMNS = ["name", "scopes", "aliases", "left"]


def test_a_piped_table_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    show_list(ROWS, COLUMNS, as_json=False)
    heading, row = (line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert heading.split() == COLUMNS
    assert re.split(r"\s{2,}", row) == [ROWS[0]["name"], "inference, usage:read", "live=3", "-"]


def test_what_tenants_wrote_is_shown_as_it_stands_and_steers_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An answer that ends in [/INST] is no markup; an escape sequence could rewrite what was shown before."""
    show_list([{"old": "So long [/INST] [red]", "new": "\x1b[2J\x9b gone"}], ["old", "new"], as_json=False)
    told = capsys.readouterr().out
    assert "So long [/INST] [red]" in told
    assert "\ufffd[2J\ufffd gone" in told
    show({"reason": "\x1b]0;title\x07"}, as_json=False)
    assert "\x1b" not in capsys.readouterr().out


def test_json_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    show_list(iter(ROWS), COLUMNS, as_json=True)
    assert json.loads(capsys.readouterr().out) == ROWS


def test_one_thing_is_a_line_a_field(capsys: pytest.CaptureFixture[str]) -> None:
    show({"id": "x", "ranks": [8, 16]}, as_json=False)
    assert capsys.readouterr().out == "id     x\nranks  8, 16\n"
