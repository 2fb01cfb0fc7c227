"""What a guard does to itself before it opens a tenant's file, and what of it took effect."""

import os
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from appliance.child import die_with_parent
from appliance.confinement import landlock, privileges, seccomp
from appliance.runtime.processors.cpu import mapped

GROUP = 64_000
"""Of all guards where the box is root: it may read their forms. Their users follow it, one each."""
STDERR_BYTES = 16_384
"""What it may say on standard error, which is the only file that it can write."""
FILES_MAX = 128
_ROLLUP_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Confinement:
    """What holds a guard back; each is true where it took effect."""

    files: bool
    """It sees its prepared forms, and where it has no root of its own also the interpreter's libraries."""
    calls: bool
    """System calls are filtered."""
    capabilities: bool
    """It has none."""
    own_user: bool
    """It runs as a user of its own; never where the box is not root."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where a guard lives."""

    folder: str
    """The only files that it sees; its root directory where the box is root."""
    user: int
    parent: int
    granted_bytes: int
    """What it may allocate before it has any build."""


@dataclass(frozen=True, slots=True)
class Entered:
    """What a guard is afterwards."""

    root: str
    """What its paths begin with: its folder, or nothing where that is its root directory."""
    mappings: mapped.ProcFiles
    """Opened before."""
    memory: "OwnMemory"
    base_bytes: int
    """What the process takes by itself (Pss)."""
    data: "DataLimit"
    confinement: Confinement


def enter(home: Home) -> Entered:
    """Give up everything that computing does not need. Before other threads are started.

    Raises: SystemExit when the parent has gone.
    """
    os.environ.clear()
    die_with_parent()
    privileges.go_first()
    memory = OwnMemory()
    base_bytes = memory.pss_bytes()
    data = DataLimit(home.granted_bytes)
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (STDERR_BYTES, STDERR_BYTES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, FILES_MAX))
    privileges.gain_no_rights()
    maps = os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)
    status = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
    is_root = os.geteuid() == 0
    # Opened by root, the page map says where in the machine's memory a page is, and goes on to say it.
    pages = None if is_root else os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    if is_root:
        os.chroot(home.folder)
        os.chdir("/")
    privileges.bound_capabilities()
    has_user = is_root and privileges.become(home.user, GROUP)
    privileges.drop_capabilities()
    has_none = not any(privileges.capability_sets(status))
    os.close(status)
    privileges.hide()
    die_with_parent()  # forgotten by a change of user
    if os.getppid() != home.parent:
        raise SystemExit("the parent has ended")
    readable = ("/",) if is_root else (*landlock.runtime(), home.folder)
    files = landlock.confine(readable)
    calls = seccomp.restrict(seccomp.computing())
    confinement = Confinement(files, calls, has_none, has_user)
    return Entered("" if is_root else home.folder, mapped.ProcFiles(maps, pages), memory, base_bytes, data, confinement)


class DataLimit:
    """How much the process may allocate: what it had at first, and what the service grants for builds and runs.

    It sets that itself, for the service may not where it has another user; code of a tenant's that lifts it again meets
    the service's watch on what is really taken.
    """

    def __init__(self, granted_bytes: int) -> None:
        self._first_bytes = status_bytes("self", "VmData")
        self.grant(granted_bytes)

    def grant(self, count_bytes: int) -> None:
        """Beyond what it had at first."""
        resource.setrlimit(resource.RLIMIT_DATA, (self._first_bytes + count_bytes, resource.RLIM_INFINITY))


def status_bytes(process: int | str, *names: str) -> int:
    """Sum of these lines of `/proc/…/status`; 0 where it has gone."""
    with suppress(OSError):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.split(":")[0] in names)
    return 0


def is_stopped(process: int) -> bool:
    """Whether a signal or a tracer has stopped the process; false where it has gone."""
    with suppress(OSError):
        line = Path(f"/proc/{process}/stat").read_text()
        return line.rpartition(") ")[2][:1] in ("T", "t")
    return False


class OwnMemory:
    """What this process takes, read from a file that is opened while it still sees it."""

    def __init__(self) -> None:
        self._rollup = os.open("/proc/self/smaps_rollup", os.O_RDONLY | os.O_CLOEXEC)

    def pss_bytes(self) -> int:
        """Pages that several processes share count in parts. A millisecond."""
        for line in os.pread(self._rollup, _ROLLUP_BYTES, 0).splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
        return 0
