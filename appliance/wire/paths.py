"""What the box tells of errors: the words of the system, without paths of the machine."""

import re
from pathlib import Path

_TOP_FOLDERS = frozenset(
    "bin boot data dev etc home lib lib64 media mnt opt proc root run sbin snap srv state sys tmp usr var work".split()
)
"""Of any machine; those of this one come to them."""
_PATHS_OF_THE_API = frozenset({"v1", "v2", "docs", "problems", "metrics"})


def _top_folders() -> frozenset[str]:
    try:
        return _TOP_FOLDERS.union(one.name for one in Path("/").iterdir()) - _PATHS_OF_THE_API
    except OSError:  # a device that does not show them
        return _TOP_FOLDERS


_TOP = "|".join(map(re.escape, sorted(_top_folders())))
_LETTER = r"[^\s/'\"`,;:()\[\]<>]"
_PATH = re.compile(rf"(?<![\w./])(?!(?<=:)//)(?:file:)?/+(?:{_TOP})/(?:{_LETTER}+/)*({_LETTER}*)")


def without_paths(text: str) -> str:
    """Return what is told to callers of an error: of each absolute path of the machine only the name of its file."""
    return _PATH.sub(r"\1", text) if "/" in text else text
