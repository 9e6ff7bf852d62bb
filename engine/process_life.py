"""How a child process of the engine ends with the process that started it, and with nothing else."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import BinaryIO

PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """From now on this process is killed when process `parent`, its starter, dies; for times in which nobody
    here looks. It is also the parent's to end it: a supervisor that tells all processes of a service to stop
    must not cut off what the parent still drains. Raises `SystemExit` when the parent is dead already."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    _signal_at_parents_end(signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(1)


def outlive_parent() -> None:
    """Lets this process outlive its parent: it looks itself."""
    _signal_at_parents_end(0)


def own_output() -> BinaryIO:
    """Standard output for the caller alone: what a library prints goes to the log."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return output


def _signal_at_parents_end(number: int) -> None:
    """0 = none. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
