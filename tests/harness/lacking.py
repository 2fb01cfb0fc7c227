"""What this machine lacks for a test. Each function returns why the test cannot run here, or None where it can.

Only what was asked for is looked at, so that a fault of the test, or of the appliance, is no reason to skip.
"""

import errno
import fcntl
import os
import platform
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

_CAP_SYS_ADMIN = 21
_IN_MEMORY = ("tmpfs", "ramfs")


def skip_if(*reasons: str | None) -> None:
    """Skip the test for the first of these reasons that is one."""
    if reason := next(filter(None, reasons), None):
        pytest.skip(reason)


def lacks_root(purpose: str) -> str | None:
    """Return why this user cannot do what only root can, in the words of `purpose`."""
    return None if os.geteuid() == 0 else f"only root can {purpose}"


def lacks_mounts() -> str | None:
    """Return why nothing can be mounted here."""
    if reason := lacks_root("mount"):
        return reason
    return None if _has_capability(_CAP_SYS_ADMIN) else "this root may not mount: it lacks CAP_SYS_ADMIN"


def lacks_tools(packages: Mapping[str, str]) -> str | None:
    """Return which of these programs is not here; `packages` names Debian's package of each."""
    absent = next((tool for tool in packages if shutil.which(tool) is None), None)
    return absent and f"there is no {absent} (Debian's package {packages[absent]})"


@cache
def lacks_namespaces(*kinds: str) -> str | None:
    """Return why no namespaces of these kinds (`mount`, `pid`, `net`) can be made here."""
    if reason := lacks_root("make namespaces") or lacks_tools({"unshare": "util-linux"}):
        return reason
    order = ["unshare", "--fork", *(f"--{kind}" for kind in kinds), "true"]
    said = subprocess.run(order, capture_output=True, text=True, check=False)
    return None if said.returncode == 0 else f"namespaces are not permitted here: {said.stderr.strip()}"


def lacks_leases(folder: Path) -> str | None:
    """Return why files in a folder have no leases (fcntl(2), `F_SETLEASE`)."""
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            return f"files on {file_system_of(folder)} have no leases: {os.strerror(error.errno or 0)}"
    return None


def lacks_page_cache(folder: Path) -> str | None:
    """Return why files in a folder cannot leave the page cache: it is all that they have."""
    kind = file_system_of(folder)
    return f"files on {kind} live in the page cache, and cannot leave it" if kind in _IN_MEMORY else None


def lacks_glibc() -> str | None:
    """Return why there is no heap of glibc in this process."""
    return None if platform.libc_ver()[0] == "glibc" else "the C library of this Python is not glibc"


def lacks_cgroups() -> str | None:
    """Return why this process is in no cgroup that it can look into."""
    mounted = re.search(r"(?m) - cgroup2? ", Path("/proc/self/mountinfo").read_text())
    return None if mounted else "no cgroups are mounted here"


def lacks_stalls() -> str | None:
    """Return why the kernel tells nobody of processes that stand (PSI), or lets this process set no trigger."""
    try:
        with open("/proc/pressure/cpu", "r+b", buffering=0) as file:
            file.write(b"some 200000 2000000\0")
    except OSError as error:
        return f"the kernel takes no trigger for stalls: {os.strerror(error.errno or 0)}"
    return None


def lacks_address(family: socket.AddressFamily, address: str) -> str | None:
    """Return why this machine cannot be reached by an address of its own."""
    try:
        with socket.socket(family) as probe:
            probe.bind((address, 0))
    except OSError as error:
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return f"this machine has no address {address}"
        raise
    return None


def file_system_of(folder: Path) -> str:
    """Return the kind of file system that a folder is on, as the kernel names it: `ext4`, `tmpfs`."""
    where, kinds = folder.resolve(), {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, kind = line.split(" - ")
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields.split()[4])
        kinds[Path(point)] = kind.split()[0]  # what was mounted last hides what is below
    return next(kinds[parent] for parent in (where, *where.parents) if parent in kinds)


def _has_capability(number: int) -> bool:
    found = re.search(r"(?m)^CapEff:\s*(\w+)$", Path("/proc/self/status").read_text())
    return found is not None and bool(int(found[1], 16) >> number & 1)
