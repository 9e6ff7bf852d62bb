"""The `motet` command: its version, its help, and sub-commands that load only what they need."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from deploy.cli import SUB_COMMANDS, build_app
from gateway.cli import app


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build_app(arguments), list(arguments))
    return result.exit_code, result.output


def test_version() -> None:
    assert run("--version") == (0, f"motet {version('motet')}\n")


def test_help_names_every_sub_command() -> None:
    code, output = run("--help")
    assert code == 0
    assert all(sub.name in output for sub in SUB_COMMANDS)


@pytest.mark.parametrize("name", [sub.name for sub in SUB_COMMANDS])
def test_each_sub_command_is_really_there(name: str) -> None:
    code, output = run(name, "--help")
    assert code == 0
    assert f"motet {name}" in output or f"root {name}" in output


def test_each_command_of_the_gateway_is_one_of_motet() -> None:
    """One that stands in no list is written and tested, and nobody can call it."""
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    assert set(group.commands) <= {sub.name for sub in SUB_COMMANDS}


def test_an_unknown_command_is_refused() -> None:
    code, output = run("serve")
    assert code == 2
    assert "No such command 'serve'" in output


def test_a_wrong_dtype_is_refused_by_name() -> None:
    code, output = run("up", "--dtype", "float16")
    assert code == 2
    assert "--dtype is bfloat16 or float32" in output
