"""The file of forecasters: what was chosen for each application outlives the process that learnt it."""

import json
from collections.abc import Mapping
from pathlib import Path

from appliance.policies.forecast.base import Forecaster
from appliance.policies.forecast.ewma import Ewma
from appliance.policies.forecast.renewal import Renewal
from appliance.policies.forecast.rnn import Rnn


class ForecastFile:
    """Forecasters between two runs of the box: application → its forecaster's name, or its weights. A damaged file is an empty one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._texts: dict[str, str] = {}
        try:
            document = json.loads(path.read_text())
        except (OSError, ValueError):
            return
        if isinstance(document, dict):
            self._texts = {name: text for name, text in document.items() if isinstance(text, str)}

    def of(self, application: str) -> Forecaster:
        """What was chosen last; the one for little history where nothing was."""
        text = self._texts.get(application, "")
        if text == Renewal().name:
            return Renewal()
        if text.startswith("{"):
            try:
                return Rnn.from_json(text)
            except ValueError:
                return Ewma()
        return Ewma()

    def save(self, forecasters: Mapping[str, str]) -> None:
        """Replace the file, whole or not at all; a disk that is full costs the forecast, nothing else."""
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps(forecasters))
            fresh.replace(self._path)
        except OSError:
            fresh.unlink(missing_ok=True)
