"""The file of sign-ins: browsers stay signed in over a restart.

Beside the database, so that no backup brings them back.
"""

import datetime
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol


class Kept(Protocol):
    """What is kept of a sign-in."""

    @property
    def sha256(self) -> str: ...

    @property
    def key_id(self) -> str: ...

    @property
    def began_at(self) -> datetime.datetime: ...

    @property
    def used_at(self) -> datetime.datetime: ...


class SignInFile:
    """Sign-ins between two runs of the box. A damaged file is an empty one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> list[tuple[str, str, datetime.datetime, datetime.datetime]]:
        """(digest of the cookie, id of the key, began, last used) of each."""
        try:
            document = json.loads(self._path.read_text())
            return [_read(one) for one in document]
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return []

    def save(self, sign_ins: Iterable[Kept]) -> None:
        """Replace the file, readable by its owner only; a disk that is full costs new sign-ins, nothing else."""
        rows = [
            {
                "sha256": one.sha256,
                "key": one.key_id,
                "began": one.began_at.isoformat(),
                "used": one.used_at.isoformat(),
            }
            for one in sign_ins
        ]
        fresh = self._path.with_suffix(".new")
        try:
            fresh.unlink(missing_ok=True)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(rows, file)
            fresh.replace(self._path)
        except OSError:
            fresh.unlink(missing_ok=True)


def _read(row: Mapping[str, str]) -> tuple[str, str, datetime.datetime, datetime.datetime]:
    began, used = (datetime.datetime.fromisoformat(row[name]).astimezone(datetime.UTC) for name in ("began", "used"))
    return str(row["sha256"]), str(row["key"]), began, used
