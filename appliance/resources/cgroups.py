"""The control groups (cgroups) that this process is in, as the kernel shows them: of version 1, of version 2, or both
beside one another.

Everything is read below a root folder, so that a test can bring a tree of its own.
"""

import errno
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MACHINE = Path("/")
_VERSIONS = {"cgroup": 1, "cgroup2": 2}
"""By the name of the file system."""
_NO_LIMIT_FROM = 2**60
"""Version 1 has no word for "no limit"; it shows the largest number that it can count to."""


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A folder of a hierarchy; `version` is the hierarchy's, 1 or 2."""

    folder: Path
    version: int

    def number(self, file: str) -> int | None:
        """The number in a file; None where there is no such file, or where it says that there is no limit."""
        return limit_in(self.text(file))

    def text(self, file: str) -> str:
        """What a file says; empty where it is not there, or may not be read. Raises: OSError where this process has as
        many files open as it may.
        """
        try:
            return (self.folder / file).read_text().strip()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # a limit that cannot be read now is a limit all the same
                raise
            return ""

    def numbers(self, file: str) -> dict[str, int]:
        """Name → number, of a file with both on each line."""
        rows = (line.split() for line in self.text(file).splitlines())
        return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


@dataclass(frozen=True, slots=True)
class _Mount:
    cgroup: PurePosixPath
    """The cgroup that stands at `point`: all of a hierarchy, or a branch of it."""
    point: Path
    version: int
    controllers: frozenset[str]
    """Of version 1."""


def limit_in(text: str) -> int | None:
    """The limit that a file states; None: there is none (`max`, -1, the largest number of version 1, nothing)."""
    return int(text) if text.isdigit() and int(text) < _NO_LIMIT_FROM else None


def own_cgroups(controller: str, root: Path = MACHINE) -> tuple[Cgroup, ...]:
    """Find the cgroup of this process that a controller (`memory`, `cpu`, `cpuset`) goes by, and those above it that
    can be seen from here, the nearest first; none where no hierarchy is mounted.

    A controller goes by version 1 where /proc/self/cgroup names it, else by version 2; empty: version 2 itself.
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
    # A path that no mount holds was written down by somebody outside of this container: what is mounted is its own.
    found = folders or dict.fromkeys([mounts[0].point])
    return tuple(Cgroup(folder, version) for folder in found if folder.is_dir())


def _paths(root: Path) -> Iterator[tuple[str, PurePosixPath]]:
    """The cgroup of this process by controller; of version 2 under the empty name."""
    for line in _lines(root / "proc/self/cgroup"):
        _number, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, PurePosixPath(path)


def _mounts(root: Path) -> list[_Mount]:
    """Hierarchies that are mounted; at each place the last one, which hides those before."""
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
    """None, where the file is not there: another system, or a /proc that hides it."""
    with suppress(OSError):
        return path.read_text().splitlines()
    return []
