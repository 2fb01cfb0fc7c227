"""The cache folder: finished things under their final name, unfinished ones under `staging`, one process at a time.

A finished folder appears by one rename, so whoever is killed leaves nothing half; the next one that holds the lock
sweeps `staging`.

    carriers/<name>-<version>/…   files taken out of packages
    derived/<name>-<key>/…        what recipes made of them
    downloads/                    package files brought by hand; used instead of the network
    tools/                        programs the zoo needs and the machine lacks
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from appliance.demo.zoo.errors import CacheUnusable

Progress = Callable[[str, int, int | None], None]
"""what, done bytes, total bytes (None: not known)."""


def default_folder() -> Path:
    """`$XDG_CACHE_HOME/edge-appliance`, by default `~/.cache/edge-appliance`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "edge-appliance"


class Cache:
    """One cache folder. All methods but `locked` want the lock held."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    @property
    def downloads(self) -> Path:
        """Package files brought by hand."""
        return self.folder / "downloads"

    @contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """Hold the folder alone; a second process waits here and then finds the work done.

        Sweeps what a killed one left.

        Raises `CacheUnusable` when the folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("a")
        except OSError as error:
            raise CacheUnusable(carrier="the zoo", reason=str(error)) from error
        with lock as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress("another process is fetching; waiting for it", 0, None)
                fcntl.flock(file, fcntl.LOCK_EX)
            shutil.rmtree(self.folder / "staging", ignore_errors=True)
            yield

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A fresh folder for unfinished work, removed at the end."""
        folder = self.folder / "staging" / uuid4().hex
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def finished(self, *parts: str) -> Path | None:
        """The finished folder of that name, if it is there."""
        target = self.folder.joinpath(*parts)
        return target if target.is_dir() else None

    def keep(self, made: Path, *parts: str) -> Path:
        """Move a staged folder to its final name, in place of an earlier one; it survives a power cut from here on."""
        target = self.folder.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        for path in sorted(made.rglob("*")):
            _sync(path)
        self.discard(*parts)
        made.replace(target)
        _sync(target.parent)
        return target

    def discard(self, *parts: str) -> None:
        """Remove a finished folder: out of sight at once, then from the disk."""
        target = self.folder.joinpath(*parts)
        if target.exists():
            with self.staging() as bin_folder:
                target.replace(bin_folder / "discarded")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
