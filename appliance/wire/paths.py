"""What the box tells of errors: the words of the system, without paths of the machine."""

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

_SYSTEM = "bin boot dev etc lib lib64 opt proc root run sbin snap sys tmp usr var".split()
"""Folders of any machine. Others, as `/home` or `/data`, may be the first part of a tensor's name."""
_LETTER = r"[^\s/'\"`,;:()\[\]<>]"


class _Hidden:
    """The folders whose paths are not told, as one pattern."""

    def __init__(self, folders: Iterable[str]) -> None:
        self._folders = set[str]()
        self.add(*folders)

    def add(self, *folders: str) -> None:
        self._folders.update(name for one in folders if (name := one.strip("/")))
        known = "|".join(re.escape(one) for one in sorted(self._folders, reverse=True))
        self.path = re.compile(rf"(?<![\w./])(?!(?<=:)//)(?:file:)?/+(?:{known})(?:(?:/{_LETTER}*)+|(?!{_LETTER}))")


_hidden = _Hidden((*_SYSTEM, sys.prefix, os.path.expanduser("~")))


def hide_folder(folder: Path) -> None:
    """Of paths in this folder, too, only the name of the file is told from now on."""
    _hidden.add(str(folder.resolve()))


def without_paths(text: str) -> str:
    """Return what is told to callers of an error: of each absolute path of the machine only the name of its file."""
    return _hidden.path.sub(lambda path: path[0].rstrip("/").rpartition("/")[2], text) if "/" in text else text
