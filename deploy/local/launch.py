"""Becomes another program, tied to the life of its parent.

Run by path, with the standard library only, so that it starts in milliseconds:

    python -I -S launch.py PARENT_PID SIGNAL UID GID -- program args...

It asks the kernel to send SIGNAL when the parent dies (also by SIGKILL), drops to UID and GID where one is
given (-1 keeps the current one), and executes the program, which keeps this process id. A hook between fork
and exec could do the same, but Python code there is unsafe once the parent has threads. The signal is armed
after the change of user, because that change disarms it.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_OVERRIDE = 1
CAPABILITY_VERSION_3 = 0x20080522


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def main(arguments: list[str]) -> None:
    parent, signal_number, uid, gid = (int(value) for value in arguments[:4])
    program = arguments[5:]
    if uid >= 0:
        _become(uid, gid, program)
    if sys.platform == "linux":
        _die_with(parent, signal_number)
    os.execv(program[0], program)  # noqa: S606 - becoming that program is the purpose


def _become(uid: int, gid: int, program: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    # A checkout under /root is closed to every other user. Rather than open it up, let the program keep
    # root's right to pass file permissions, and nothing else of root.
    keep = sys.platform == "linux" and not _open_to_all(program[0], os.getcwd())
    if keep:
        _must(libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0))
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if keep:
        mask = 1 << CAP_DAC_OVERRIDE
        header = _CapHeader(CAPABILITY_VERSION_3, 0)
        data = (_CapData * 2)(_CapData(mask, mask, mask), _CapData(0, 0, 0))
        _must(libc.capset(ctypes.byref(header), ctypes.byref(data)))
        _must(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE, 0, 0))


def _open_to_all(*paths: str) -> bool:
    for path in paths:
        folder = os.path.realpath(path)
        while folder != os.path.dirname(folder):
            if not os.stat(folder).st_mode & 0o001:
                return False
            folder = os.path.dirname(folder)
    return True


def _die_with(parent: int, signal_number: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _must(libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0))
    if os.getppid() != parent:  # it died before the request was in place
        raise SystemExit(1)


def _must(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main(sys.argv[1:])
