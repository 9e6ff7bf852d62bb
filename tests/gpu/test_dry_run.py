"""`make gpu-check` itself works, and tells of whatever fails: at tiny sizes, where no GPU is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from deploy.bench.page import NOT_ON_A_GPU, write_section

ROOT = Path(__file__).resolve().parents[2]
FAULTS = """
import os, time
from tests.gpu.scale import dry
from tests.gpu.sections import Found, Section, run_all

def fine(scale): return Found(notes=["fine"])
def raises(scale): raise ValueError("no such kernel")
def dies(scale): os._exit(7)
def hangs(scale): time.sleep(60)

works = [raises, dies, hangs, fine]
for outcome in run_all([Section(w.__name__, w, 1.0, w is fine) for w in works], dry(), 30, 2):
    print(outcome.section.name, outcome.found.notes, outcome.found.failures)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """As on a bare machine, where there is no git either."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PATH"] = str(ROOT / "nowhere")
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_a_dry_run_passes_and_writes_its_section(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    write_section(page, "other", "## other\n\nkept\n\n")
    done = run("-m", "tests.gpu", "--dry", "--write", str(page))
    assert done.returncode == 0, done.stdout + done.stderr
    text = page.read_text()
    assert "\n## other\n" in text
    assert "failed" not in text
    assert NOT_ON_A_GPU in text, "a dry run is none"
    for heading in ("Steps of decoding", "The base's products", "LoRA of rank 16", "An adapter of rank 16"):
        table = text.split(f"**{heading}")[1].split("\n\n")[1]
        assert len(table.splitlines()) > 3, heading
    assert text.count("checks passed") == 3


def test_what_fails_is_told_and_stops_nothing_else() -> None:
    told = dict(line.split(" ", 1) for line in run("-c", FAULTS).stdout.splitlines())
    assert "no such kernel" in told["raises"]
    assert "ended with 7" in told["dies"]
    assert "not done after 1 s" in told["hangs"]
    assert told["fine"] == "['fine'] []"
