"""What the box tells of errors: the words of the system, without paths of the machine."""

import os
import re
import sys
from pathlib import Path

_SYSTEM = "bin boot dev etc lib lib64 opt proc root run sbin snap sys tmp usr var".split()
"""Folders of any machine. Others, as `/home` or `/data`, may be the first part of a tensor's name."""
_LETTER = r"[^\s/'\"`,;:()\[\]<>]"


class _Folders:
    """Those whose paths are not told."""

    def __init__(self, *folders: str) -> None:
        self._names = set(folders)
        self.add("")

    def add(self, folder: str) -> None:
        self._names.add(folder.strip("/"))
        known = "|".join(re.escape(one) for one in sorted(self._names, reverse=True) if one)
        self.path = re.compile(rf"(?<![\w./])(?!(?<=:)//)(?:file:)?/+(?:{known})(?:(?:/{_LETTER}*)+|(?!{_LETTER}))")


_folders = _Folders(*_SYSTEM)
for _one in (sys.prefix, os.path.expanduser("~")):
    _folders.add(_one)


def hide_folder(folder: Path) -> None:
    """Of paths in this folder, too, only the name of the file is told from now on."""
    _folders.add(str(folder.resolve()))


def without_paths(text: str) -> str:
    """Return what is told to callers of an error: of each absolute path of the machine only the name of its file."""
    return _folders.path.sub(lambda path: path[0].rstrip("/").rpartition("/")[2], text) if "/" in text else text
