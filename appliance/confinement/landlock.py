"""Keeps a process to its own files, where the kernel can (Linux 5.13 or newer): a parser that was taken over finds no
keys.

Reading: what the caller names, for example the interpreter and system libraries (`runtime`). Writing: only what the
caller names. No program can be started, no process outside be traced; newer kernels also refuse TCP connections and
signals to processes outside. Limits neither memory nor time.
"""

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

import appliance

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""System calls; the numbers are the same on x86-64 and on ARM."""
VERSION_FLAG = 1
PATH_BENEATH = 1
READ_FILE, READ_DIR, WRITE_FILE, TRUNCATE = 1 << 2, 1 << 3, 1 << 1, 1 << 14
FILE_RIGHTS = 1 | READ_FILE | WRITE_FILE | TRUNCATE | 1 << 15
EXECUTE = 1
RIGHTS_BY_VERSION = (0, 13, 14, 15, 15, 16)
"""How many of the file system rights each version of the interface knows; the last entry holds for newer ones."""
SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/sys/devices/system",
    "/dev/null",
    "/dev/zero",
    "/dev/urandom",
)

OWN_PROCESS = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/vm")
"""What libraries look up about the machine and the process itself; nothing about others."""


def confine(readable: Iterable[str], writable: Iterable[str] = ()) -> bool:
    """Restrict this thread and all that it starts from now on, for good. False where the kernel cannot.

    Folders count with all that is in them; paths that do not exist are left out. Call before other threads are started.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    known = version()
    if known < 1:
        return False
    handled = (1 << RIGHTS_BY_VERSION[min(known, len(RIGHTS_BY_VERSION) - 1)]) - 1
    attributes = struct.pack("QQQ", handled, 3 if known >= 4 else 0, 3 if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    ruleset = libc.syscall(CREATE_RULESET, attributes[:size], size, 0)
    if ruleset < 0:
        return False
    for path in readable:
        _allow(libc, ruleset, path, READ_FILE | READ_DIR)
    for path in writable:
        _allow(libc, ruleset, path, handled & ~EXECUTE)
    is_confined = bool(libc.syscall(RESTRICT_SELF, ruleset, 0) == 0)
    os.close(ruleset)
    return is_confined


def version() -> int:
    """Of the kernel's interface; 0 where it has none, or something in between refuses the calls."""
    return max(0, int(ctypes.CDLL(None, use_errno=True).syscall(CREATE_RULESET, None, 0, VERSION_FLAG)))


def runtime() -> Iterable[str]:
    """What an interpreter with our modules reads. Not the folder above our package: in a checkout the state folder may
    lie there.
    """
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return (*SYSTEM, sys.prefix, sys.base_prefix, str(Path(appliance.__file__).parent), *filter(None, libraries))


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):
        rights &= FILE_RIGHTS
    libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0)
    os.close(descriptor)
