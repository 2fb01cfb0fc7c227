"""A folder with a model and what belongs to it, as one archive; equal folders give equal bytes, so that a cut upload
can go on.
"""

import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.terminal.failure import CommandFailed


@contextmanager
def as_file(source: Path) -> Iterator[Path]:
    """`source` itself where it is a file, else a tar of the folder, removed at the end.

    Raises: CommandFailed when there is no ONNX file in the folder.
    """
    if source.is_file():
        yield source
        return
    if not any(source.glob("*.onnx")):
        raise CommandFailed(f"there is no .onnx file in the folder {str(source)!r}")
    with tempfile.TemporaryDirectory(prefix="appliance-") as folder:
        target = Path(folder) / f"{source.resolve().name}.tar"
        with tarfile.open(target, "w") as archive:
            for path in sorted(path for path in source.rglob("*") if path.is_file()):
                archive.add(path, path.relative_to(source).as_posix(), recursive=False, filter=_anonymous)
        yield target


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without owner and time: the archive depends on the contents only."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    return entry
