"""The file of sign-ins: browsers stay signed in over a restart.

Beside the database, so that no backup brings them back.
"""

import datetime
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from appliance.modelstore.store.json_file import JsonFile


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
        self._file = JsonFile(path)

    def load(self) -> list[tuple[str, str, datetime.datetime, datetime.datetime]]:
        """(digest of the cookie, id of the key, began, last used) of each."""
        try:
            return [_read(one) for one in self._file.read()]
        except (ValueError, TypeError, KeyError):
            return []

    def save(self, sign_ins: Iterable[Kept]) -> None:
        """Replace the file; a disk that is full costs new sign-ins, nothing else."""
        rows = [
            {
                "sha256": one.sha256,
                "key": one.key_id,
                "began": one.began_at.isoformat(),
                "used": one.used_at.isoformat(),
            }
            for one in sign_ins
        ]
        self._file.save(rows)


def _read(row: Mapping[str, str]) -> tuple[str, str, datetime.datetime, datetime.datetime]:
    began, used = (datetime.datetime.fromisoformat(row[name]).astimezone(datetime.UTC) for name in ("began", "used"))
    return str(row["sha256"]), str(row["key"]), began, used
