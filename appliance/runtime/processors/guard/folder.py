"""The folder of a guard: the prepared forms that it may read, as links where they can be, and nothing else. Where the
box is root, the folder is the guard's root directory.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from appliance.domain.hardware import PreparedForm
from appliance.runtime.processors.guard.limits import FILES_MAX, GROUP

_CURRENT, _OPENED = "current", "opened"
_FOLDER_MODE, _FILE_MODE = 0o750, 0o640


def new_folder(scratch: Path, looked_for: Iterable[Path] = ()) -> Path:
    """With empty files in the place of those that are `looked_for` and not read. Blocks."""
    scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = Path(tempfile.mkdtemp(prefix="guard-", dir=scratch))
    _show(folder, _FOLDER_MODE)
    opened = folder / "proc" / "self"
    opened.mkdir(parents=True)
    _show(opened.parent, _FOLDER_MODE)
    _show(opened, _FOLDER_MODE)
    (opened / "fd").symlink_to(f"/{_CURRENT}/{_OPENED}")
    for file in looked_for:
        _stand_for(file, folder)
    return folder


def link_form(form: PreparedForm, folder: Path) -> str:
    """Put a form into the folder, to be loaded next; returns its path there, from the folder on. Blocks.

    Links, so that its pages are those of the file itself. Where the box is root its group becomes the guards', who may
    read it: nobody else comes through the folders above.
    """
    return _put_form(form, folder, _link)


def copy_form(form: PreparedForm, folder: Path) -> str:
    """As `link_form`, with copies: ONNX Runtime (1.31) refuses weights that a subgraph, the branch of an `If` for
    example, has in a file that has several names. The pages of a copy are nobody else's.
    """
    return _put_form(form, folder, _copy)


def _put_form(form: PreparedForm, folder: Path, put: Callable[[Path, Path], Path]) -> str:
    path = Path(form.path)
    place = Path(tempfile.mkdtemp(dir=folder))
    _show(place, _FOLDER_MODE)
    for file in path.parent.iterdir() if form.optimised else [path]:
        linked = put(file, place)
        if file.suffix == ".bin" and form.optimised:
            _answer_for(place, linked.name)
    current = folder / f"{_CURRENT}.new"
    current.symlink_to(place.name)
    current.replace(folder / _CURRENT)
    return f"/{place.name}/{path.name}"


def link_file(file: Path, folder: Path) -> str:
    """Put a single file into the folder; returns its path there, from the folder on. Blocks."""
    place = Path(tempfile.mkdtemp(dir=folder))
    _show(place, _FOLDER_MODE)
    return f"/{place.name}/{_link(file, place).name}"


def unlink(path: str, folder: Path) -> None:
    """What `link_form` or `link_file` has put there goes. Blocks."""
    shutil.rmtree((folder / path.lstrip("/")).parent, ignore_errors=True)


def _stand_for(file: Path, folder: Path) -> None:
    """An empty file, below the folder where it is below the root."""
    place = folder
    for name in file.parts[1:-1]:
        place = place / name
        if not place.exists():
            place.mkdir()
            _show(place, _FOLDER_MODE)
    (place / file.name).touch()
    _show(place / file.name, _FILE_MODE)


def _link(file: Path, place: Path) -> Path:
    linked = place / file.name
    try:
        os.link(file, linked)
    except OSError:  # another file system, or one without links
        return _copy(file, place)
    _show(linked, _FILE_MODE)
    return linked


def _copy(file: Path, place: Path) -> Path:
    copied = place / file.name
    shutil.copyfile(file, copied)
    _show(copied, _FILE_MODE)
    return copied


def _answer_for(place: Path, weights: str) -> None:
    """ONNX Runtime (1.31) refuses external data unless `/proc/self/fd/N` tells it what it has opened. Below a root of
    its own there is no such thing, so while a form is loaded every number stands for its weights, the one file that is
    opened then.
    """
    opened = place / _OPENED
    opened.mkdir()
    _show(opened, _FOLDER_MODE)
    for number in range(FILES_MAX):
        (opened / str(number)).symlink_to(f"/{place.name}/{weights}")


def _show(path: Path, mode: int) -> None:
    """To guards, where they are users of their own."""
    if os.geteuid() == 0:
        os.chown(path, -1, GROUP)
        path.chmod(mode)
