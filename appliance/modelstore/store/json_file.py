"""A small JSON document in the state folder, replaced as a whole; one that is damaged or missing is an empty one.

For what may be lost. Blocking.
"""

import json
import os
from pathlib import Path
from typing import Any


class JsonFile:
    """A document by its path."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> dict[str, Any]:
        """What was saved last; anything but an object is an empty one."""
        document = self.read()
        return document if isinstance(document, dict) else {}

    def read(self) -> Any:
        """What was saved last, whatever it is; None: there is nothing, or it is damaged."""
        try:
            return json.loads(self._path.read_text())
        except (OSError, ValueError, RecursionError):
            return None

    def save(self, document: Any) -> None:
        """Replace it, whole or not at all, readable by its owner only; where the disk is full it stays as it was."""
        fresh = self._path.with_suffix(".new")
        try:
            fresh.unlink(missing_ok=True)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(document, file)
            fresh.replace(self._path)
        except OSError:
            fresh.unlink(missing_ok=True)
