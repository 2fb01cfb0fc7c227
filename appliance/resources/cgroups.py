"""Control groups (cgroups) that this process is in, as the kernel shows them.

They are of version 1, of version 2, or of both side by side. All files are read below a root folder, so that a test can
bring a tree of its own.
"""

import errno
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MACHINE = Path("/")
_VERSIONS = {"cgroup": 1, "cgroup2": 2}
"""Version of cgroups by the name of the file system."""
_NO_LIMIT_FROM = 2**60
"""Number from which a limit counts as none. Version 1 has no word for "no limit"; it shows the largest number that it
can count to.
"""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """Folder of a hierarchy; `version` is the hierarchy's, 1 or 2."""

    folder: Path
    version: int

    def number(self, file: str) -> int | None:
        """Return the number in a file; None where there is no such file, or where the file states no limit."""
        return limit_in(self.text(file))

    def text(self, file: str) -> str:
        """Return the text of a file; empty where the file is not there, or may not be read.

        Raises: OSError where this process has as many files open as it may.
        """
        try:
            return (self.folder / file).read_text().strip()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # a limit that cannot be read now is a limit all the same
                raise
            return ""

    def numbers(self, file: str) -> dict[str, int]:
        """Return the numbers of a file by name; each line has a name and a number."""
        rows = (line.split() for line in self.text(file).splitlines())
        return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


@dataclass(frozen=True, slots=True)
class _Mount:
    cgroup: PurePosixPath
    """Path of the cgroup that stands at `point`: the root of a hierarchy, or of a branch."""
    point: Path
    version: int
    controllers: frozenset[str]
    """Controllers of a hierarchy of version 1, among other options of the mount."""


def limit_in(text: str) -> int | None:
    """Return the limit that a file states; None for no limit (`max`, -1, largest number of version 1, no text)."""
    return int(text) if text.isdigit() and int(text) < _NO_LIMIT_FROM else None


def own_cgroups(controller: str, root: Path = MACHINE) -> tuple[Cgroup, ...]:
    """Return the cgroup of this process that a controller (`memory`, `cpu`, `cpuset`) goes by, and cgroups above it.

    The nearest cgroup comes first; cgroups that cannot be seen from here are left out. Return none where no hierarchy
    is mounted. A controller goes by version 1 where /proc/self/cgroup names it, else by version 2. An empty controller
    stands for version 2 itself.
    """
    paths = dict(_paths(root))
    version = 1 if controller in paths and controller else 2
    path = paths.get(controller if version == 1 else "")
    mounts = [
        mount
        for mount in _mounts(root)
        if mount.version == version and (version == 2 or controller in mount.controllers)
    ]
    if path is None or not mounts:
        return ()
    folders: dict[Path, None] = {}
    for mount in mounts:
        if path.is_relative_to(mount.cgroup):
            own = mount.point / path.relative_to(mount.cgroup)
            folders |= dict.fromkeys(one for one in (own, *own.parents) if one.is_relative_to(mount.point))
    # A path that no mount holds was written down outside of this container: what is mounted is its own.
    found = folders or dict.fromkeys([mounts[0].point])
    return tuple(Cgroup(folder, version) for folder in found if folder.is_dir())


def _paths(root: Path) -> Iterator[tuple[str, PurePosixPath]]:
    """Yield each controller with the cgroup of this process; version 2 has the empty name."""
    for line in _lines(root / "proc/self/cgroup"):
        _number, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, PurePosixPath(path)


def _mounts(root: Path) -> list[_Mount]:
    """Return the hierarchies that are mounted; at each place the last mount, which hides earlier mounts."""
    found: dict[Path, _Mount | None] = {}
    for line in _lines(root / "proc/self/mountinfo"):
        place, _, kind = line.partition(" - ")
        cgroup, point = map(_unescaped, place.split(" ")[3:5])
        file_system, *_source, options = kind.split(" ")
        where, version = root / point.lstrip("/"), _VERSIONS.get(file_system)
        mount = version and _Mount(PurePosixPath(cgroup), where, version, frozenset(options.split(",")))
        found[where] = mount or None
    return [mount for mount in found.values() if mount]


def _unescaped(name: str) -> str:
    return re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), name)


def _lines(path: Path) -> list[str]:
    """Return the lines of a file; none where the file is not there: on another system, or where /proc hides it."""
    with suppress(OSError):
        return path.read_text().splitlines()
    return []
