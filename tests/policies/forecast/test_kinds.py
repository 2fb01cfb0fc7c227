"""What a registry's entry makes is written and read again."""

import pytest

from appliance.policies.forecast import FORECASTERS, MEMORY_FORECASTERS
from appliance.policies.forecast.kinds import read, written
from tests.policies.forecast.arrivals import arrivals
from tests.policies.forecast.curves import SECOND, samples
from tests.present import present

HISTORY = arrivals([1.0, 3.0] * 40)
SERIES = samples([2_000_000 - 1_000 * k - k % 7 for k in range(100)])


@pytest.mark.parametrize("name", FORECASTERS)
def test_request_forecaster_predicts_alike_after_write_and_read(name: str) -> None:
    forecaster = present(FORECASTERS[name].fit(HISTORY, 0))
    copy = read(written(forecaster), FORECASTERS)
    assert copy.name == name
    assert copy.predict(HISTORY, HISTORY[-1]) == forecaster.predict(HISTORY, HISTORY[-1])


@pytest.mark.parametrize("name", MEMORY_FORECASTERS)
def test_memory_forecaster_predicts_alike_after_write_and_read(name: str) -> None:
    forecaster = present(MEMORY_FORECASTERS[name].fit(SERIES, 5 * SECOND, 0))
    copy = read(written(forecaster), MEMORY_FORECASTERS)
    assert copy.name == name
    assert copy.predict(SERIES, 5 * SECOND) == forecaster.predict(SERIES, 5 * SECOND)


ENDLESS = 'rnn {"net": {"hidden": 1e999, "steps": 1, "weights": []}, "steps": 1e999, '
ENDLESS += '"mean": 1, "deviation": 1, "error": 1, "low": 1, "high": 1, '
ENDLESS += '"scale_bytes": 1, "error_bytes": 1, "largest_bytes": 1}'


@pytest.mark.parametrize(
    "text",
    ["", "unheard-of", "unheard-of {}", "rnn", "rnn {}", 'rnn {"net": 3}', "rnn ][", "rnn " + "[" * 100_000, ENDLESS],
)
def test_damaged_forecaster_text_is_read_as_the_default_kind(text: str) -> None:
    assert read(text, FORECASTERS).name == "ewma"
    assert read(text, MEMORY_FORECASTERS).name == "trend"
