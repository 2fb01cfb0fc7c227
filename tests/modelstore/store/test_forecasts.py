"""The files of forecasters outlive the process, damage and an older version."""

import json
from pathlib import Path

import pytest

from appliance.modelstore.store.forecasts import ForecasterFile
from appliance.policies.forecast import FORECASTERS
from appliance.policies.forecast.kinds import written
from appliance.policies.forecast.renewal import Renewal
from appliance.policies.forecast.rnn import trained
from tests.policies.forecast.arrivals import arrivals
from tests.present import present

HISTORY = arrivals([1.0, 3.0] * 40)


def test_forecaster_file_returns_saved_forecasters(tmp_path: Path) -> None:
    network = present(trained(HISTORY, 0))
    path = tmp_path / "forecasters.json"
    ForecasterFile(path, FORECASTERS).save({"t/door": written(network), "t/gate": written(Renewal())})
    again = ForecasterFile(path, FORECASTERS)
    assert again.of("t/door").predict(HISTORY, HISTORY[-1]) == network.predict(HISTORY, HISTORY[-1])
    assert [again.of(name).name for name in ("t/gate", "t/new")] == ["renewal", "ewma"]


def test_forecaster_file_of_first_version_is_read(tmp_path: Path) -> None:
    """That version wrote a network's numbers without its name."""
    network = present(trained(HISTORY, 0))
    path = tmp_path / "forecasters.json"
    path.write_text(json.dumps({"t/door": network.to_json(), "t/gate": "renewal", "t/hall": "ewma"}))
    names = [ForecasterFile(path, FORECASTERS).of(name).name for name in ("t/door", "t/gate", "t/hall")]
    assert names == ["rnn", "renewal", "ewma"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"t/door": 7}', '{"t/door": "rnn {}"}', "[" * 100_000])
def test_damaged_forecaster_file_counts_as_empty(tmp_path: Path, text: str) -> None:
    path = tmp_path / "forecasters.json"
    path.write_text(text)
    assert ForecasterFile(path, FORECASTERS).of("t/door").name == "ewma"
