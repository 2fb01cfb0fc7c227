"""The files of forecasters: what was chosen outlives the process that learnt it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic

from appliance.modelstore.store.json_file import JsonFile
from appliance.policies.forecast.kinds import ForecasterT, Kind, read


class ForecasterFile(Generic[ForecasterT]):
    """Forecasters between two runs of the box: what each is for → its text (`kinds.written`).

    A damaged file is an empty one.
    """

    def __init__(self, path: Path, kinds: Mapping[str, Kind[Any, ForecasterT]]) -> None:
        self._file = JsonFile(path)
        self._kinds = kinds
        self._texts = {key: text for key, text in self._file.load().items() if isinstance(text, str)}

    def of(self, key: str) -> ForecasterT:
        """What was chosen last; the one for little history where nothing was."""
        text = self._texts.get(key, "")
        # Files of the first version have networks without their name.
        return read(f"rnn {text}" if text.startswith("{") else text, self._kinds)

    def save(self, texts: Mapping[str, str]) -> None:
        """Replace the file; a disk that is full costs the forecast, nothing else."""
        self._file.save(dict(texts))
