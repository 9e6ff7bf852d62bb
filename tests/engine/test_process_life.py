"""A child of the engine lives as long as its parent wants."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

CHILD = """
import sys
from engine.process_life import end_with

end_with(int(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_stop_sent_to_all_processes_leaves_a_child_to_its_parent() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    for number in (signal.SIGTERM, signal.SIGINT):
        child.send_signal(number)
    child.stdin.close()
    assert child.wait(10) == 0
    child.stdout.close()
