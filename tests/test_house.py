"""The house rules that a machine can check (CONTRIBUTING.md), and documents that name what is there."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from engine.config import EngineSettings
from gateway.config import Settings

ROOT = Path(__file__).resolve().parents[1]
MOST_LINES = 400
MOST_FUNCTION_LINES = 60
MOST_BYTES = 5 * 1024 * 1024
VAGUE = {"utils", "helpers", "common", "misc", "manager", "util"}
QUOTED = r"`((?:gateway|engine|adapters|deploy|tests|migrations|docs)/[\w./-]+)`"
PACKAGES = ("gateway", "engine", "adapters", "migrations", "deploy")


def tracked() -> list[Path]:
    """Every file that git knows, or would."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def python_files() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py"]


def test_files_are_short() -> None:
    long = {str(path.relative_to(ROOT)): n for path in python_files() if (n := num_lines(path)) > MOST_LINES}
    assert not long


def test_functions_are_short() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{node.name}": node.end_lineno - node.lineno + 1
        for path in python_files()
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > MOST_FUNCTION_LINES
    }
    assert not long


def test_no_file_is_named_vaguely() -> None:
    assert not [path for path in python_files() if path.stem in VAGUE or path.parent.name in VAGUE]


def test_nothing_large_or_generated_is_kept() -> None:
    kept = tracked()
    assert not [path for path in kept if path.stat().st_size > MOST_BYTES]
    assert not [path for path in kept if path.suffix in {".so", ".pyc", ".o", ".gguf", ".whl"}]


def test_the_code_map_names_what_is_there() -> None:
    """Every path in the map of docs/ARCHITECTURE.md, and every path in backquotes of any document."""
    missing = [name for name in mapped() if not named(name)]
    assert not missing
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        quoted = re.findall(QUOTED, document.read_text())
        assert not [name for name in quoted if not named(name)], document.name


def test_every_package_stands_in_the_code_map() -> None:
    known = set(mapped())
    folders = {
        str(path.relative_to(ROOT).parent)
        for path in python_files()
        if path.relative_to(ROOT).parts[0] in ("gateway", "engine", "adapters")
    }
    assert not {folder for folder in folders if not any(name.startswith(folder) for name in known)}


def mapped() -> Iterator[str]:
    """Paths of the code map: a folder stands at the margin, what is in it is indented, up to two spaces."""
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    block = text.split("## Code map")[1].split("```")[1]
    folder = ""
    for line in block.strip().splitlines():
        if not line.startswith(" "):
            folder = line.strip()
            yield folder
            continue
        if not re.match(r"  \S", line):
            continue  # the sentence above goes on
        entry = re.split(r"\s{2,}", line.strip())[0]
        yield from (folder + name for name in entry.split() if re.fullmatch(r"[\w/]+(\.py|/)", name))
        inside = folder + entry if entry.endswith("/") and " " not in entry else folder
        for name in re.findall(r"(?<![\w/])[\w/]+\.py\b", line.strip().removeprefix(entry)):
            yield (inside if (ROOT / inside / name).exists() else folder) + name


def named(name: str) -> bool:
    path = ROOT / name
    return path.exists() or path.with_suffix(".py").exists()


def test_documented_settings_exist() -> None:
    text = (ROOT / "docs" / "OPERATIONS.md").read_text() + (ROOT / "README.md").read_text()
    code = "".join(path.read_text() for path in python_files() if path.relative_to(ROOT).parts[0] in PACKAGES)
    settings = {f"MOTET_{name}".upper() for name in Settings.model_fields}
    settings |= {f"MOTET_ENGINE_{name}".upper() for name in EngineSettings.model_fields}
    unknown = {
        name for name in re.findall(r"\bMOTET_[A-Z_]+[A-Z]\b", text) if name not in settings | set_in(code)
    }
    assert not unknown


def set_in(code: str) -> set[str]:
    return set(re.findall(r"\"(MOTET_[A-Z_]+)\"", code))


def test_every_setting_has_an_effect() -> None:
    """Each field is read somewhere else than where it is declared."""
    for settings, package in ((Settings, "gateway"), (EngineSettings, "engine")):
        used = "".join(
            path.read_text() for path in python_files() if path.relative_to(ROOT).parts[0] == package
        )
        unused = [name for name in settings.model_fields if len(re.findall(rf"\b{name}\b", used)) < 2]
        assert not unused


def test_what_is_pinned_is_in_the_stated_ranges() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stated = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {
        canonical(name): version for name, _, version in (line.partition("==") for line in lines) if version
    }
    for requirement in map(Requirement, stated):
        pinned = pins.get(canonical(requirement.name))
        assert pinned is not None, f"{requirement.name} is not pinned"
        assert requirement.specifier.contains(pinned.split(";")[0].strip(), prereleases=True), str(
            requirement
        )


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def num_lines(path: Path) -> int:
    return len(path.read_bytes().splitlines())
