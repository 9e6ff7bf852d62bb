"""How a child process of the engine ends with the process that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """From now on this process is killed when process `parent`, its starter, dies; for times in which nobody
    here looks. Raises `SystemExit` when it is dead already."""
    _signal_at_parents_end(signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(1)


def outlive_parent() -> None:
    """Undoes `end_with`: this process looks itself."""
    _signal_at_parents_end(0)


def _signal_at_parents_end(number: int) -> None:
    """0 = none. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
