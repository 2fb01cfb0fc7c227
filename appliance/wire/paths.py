"""Texts of errors as the box tells them: the words of the system, without paths of the machine."""

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

_SYSTEM = "bin boot dev etc lib lib64 opt proc root run sbin snap sys tmp usr var".split()
"""Folders of any machine. Other folders, such as `/home` or `/data`, may be the first part of a tensor's name."""
_LETTER = r"[^\s/'\"`,;:()\[\]<>]"


class _Hidden:
    """Folders whose paths are not told, as one pattern."""

    def __init__(self, folders: Iterable[str]) -> None:
        self._folders = set[str]()
        self.add(*folders)

    def add(self, *folders: str) -> None:
        self._folders.update(name for one in folders if (name := one.strip("/")))
        known = "|".join(re.escape(one) for one in sorted(self._folders, reverse=True))
        self.path = re.compile(rf"(?<![\w./])(?!(?<=:)//)(?:file:)?/+(?:{known})(?:(?:/{_LETTER}*)+|(?!{_LETTER}))")


_hidden = _Hidden((*_SYSTEM, sys.prefix, os.path.expanduser("~")))


def hide_folder(folder: Path) -> None:
    """Hide paths in this folder, too: from now on only the name of the file is told."""
    _hidden.add(str(folder.resolve()))


def without_paths(text: str) -> str:
    """Return an error's text as callers are told it: each absolute path of the machine is cut to its file's name."""
    return _hidden.path.sub(lambda path: path[0].rstrip("/").rpartition("/")[2], text) if "/" in text else text
