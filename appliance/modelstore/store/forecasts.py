"""The files of forecasters: what was chosen outlives the process that learnt it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic

from appliance.policies.forecast.kinds import ForecasterT, Kind, read


class ForecasterFile(Generic[ForecasterT]):
    """Forecasters between two runs of the box: what each is for → its text (`kinds.written`).

    A damaged file is an empty one.
    """

    def __init__(self, path: Path, kinds: Mapping[str, Kind[Any, ForecasterT]]) -> None:
        self._path = path
        self._kinds = kinds
        self._texts: dict[str, str] = {}
        try:
            document = json.loads(path.read_text())
        except (OSError, ValueError, RecursionError):
            return
        if isinstance(document, dict):
            self._texts = {key: text for key, text in document.items() if isinstance(text, str)}

    def of(self, key: str) -> ForecasterT:
        """What was chosen last; the one for little history where nothing was."""
        text = self._texts.get(key, "")
        # Files of the first version have networks without their name.
        return read(f"rnn {text}" if text.startswith("{") else text, self._kinds)

    def save(self, texts: Mapping[str, str]) -> None:
        """Replace the file, whole or not at all; a disk that is full costs the forecast, nothing else."""
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps(texts))
            fresh.replace(self._path)
        except OSError:
            fresh.unlink(missing_ok=True)
