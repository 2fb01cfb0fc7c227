"""Rights of a process that it gives up for good: capabilities, its user, being looked into by others."""

import ctypes
import os
import struct
from contextlib import suppress
from pathlib import Path

_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECUREBITS = 4, 24, 38, 28
_SECUREBITS = 0b101111
"""Being root gives no capabilities, and neither that nor keeping them over a change of user can be switched on."""
_CAPABILITIES_MAX = 64
_CAPSET_VERSION = 0x20080522
_OOM_SCORE = 1000


def gain_no_rights() -> None:
    """No program that this process starts has more rights than it has."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def become(user: int, group: int) -> bool:
    """Take another user and group, where this is root; False where the system has no such user."""
    try:
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    except OSError:
        return False
    return True


def bound_capabilities() -> None:
    """None can ever come back, not by being root either."""
    for capability in range(_CAPABILITIES_MAX):
        _prctl(_PR_CAPBSET_DROP, capability)
    _prctl(_PR_SET_SECUREBITS, _SECUREBITS)


def drop_capabilities() -> None:
    """Empty all sets of this thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.capset(struct.pack("=Ii", _CAPSET_VERSION, 0), bytes(24))


def hide() -> None:
    """Let processes of the same user neither trace this one nor read its memory."""
    _prctl(_PR_SET_DUMPABLE, 0)


def go_first() -> None:
    """Ask the kernel to end this process before others when memory runs out."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))


def capability_sets(status: str | int = "/proc/self/status") -> list[int]:
    """Those in force of this process; `status` may be an open descriptor."""
    with suppress(OSError), open(status, encoding="utf-8", closefd=isinstance(status, str)) as file:
        lines = file.read().splitlines()
        return [int(line.split()[1], 16) for line in lines if line.startswith(("CapPrm", "CapEff", "CapInh"))]
    return []


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
