"""The cache folder: finished things under their final name, unfinished ones under `staging`, one process at a time.

A finished folder appears by one rename, so a killed process leaves nothing half; the next one that holds the lock
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
from tempfile import TemporaryDirectory

UNUSABLE = "the cache cannot be written while fetching {} ({}); free space there or name another folder"

Progress = Callable[[str, int, int | None], None]
"""what, done bytes, total bytes (None: not known)."""


class ZooError(Exception):
    """A network cannot be had, and is left out of the zoo; `str()` is a sentence that says what to do."""


class NotAvailable(ZooError):
    """A package cannot be had on this machine now."""


class RegistryUnreachable(NotAvailable):
    """A registry does not answer, or the line broke; its other packages need not be asked for."""


def default_folder() -> Path:
    """`$XDG_CACHE_HOME/edge-appliance`, by default `~/.cache/edge-appliance`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "edge-appliance"


class Cache:
    """One cache folder. All methods but `locked` want the lock held."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    @contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """Hold the folder alone; a second process waits here and then finds the work done.

        Sweeps what a killed one left. Raises `ZooError` when the folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("a")
        except OSError as error:
            raise ZooError(UNUSABLE.format("the zoo", error)) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress("another process is fetching; waiting for it", 0, None)
                fcntl.flock(lock, fcntl.LOCK_EX)
            shutil.rmtree(self.folder / "staging", ignore_errors=True)
            yield

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A fresh folder for unfinished work, removed at the end."""
        (self.folder / "staging").mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=self.folder / "staging") as folder:
            yield Path(folder)

    def made(
        self, name: str, make: Callable[[Path], None], is_whole: Callable[[Path], bool] = lambda folder: True
    ) -> Path:
        """The finished folder `name`; one that is not there or not whole is filled by `make`, out of sight.

        Raises `ZooError` when it cannot be written.
        """
        target = self.folder / name
        if target.is_dir() and is_whole(target):
            return target
        try:
            with self.staging() as staging:
                (staging / "made").mkdir()
                make(staging / "made")
                for path in filter(Path.is_file, (staging / "made").rglob("*")):
                    with path.open("rb") as file:
                        os.fsync(file.fileno())  # a power cut leaves the folder whole or absent
                target.parent.mkdir(parents=True, exist_ok=True)
                if target.exists():
                    target.replace(staging / "earlier")
                (staging / "made").replace(target)
        except OSError as error:
            raise ZooError(UNUSABLE.format(name, error)) from error
        return target
