"""Emulated devices go on using the SDK as it is: their frames come to a real box, and are answered."""

from pathlib import Path

import pytest

from appliance.lab.scenario import Scenario, read_scenario
from tests.e2e import live_scenario

pytestmark = [pytest.mark.nightly("a server and devices of a scenario"), pytest.mark.usefixtures("ports", "processes")]

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def _scenario(name: str, seconds: float) -> Scenario:
    whole = read_scenario(SCENARIOS / name, {"duration_s": seconds})
    return whole.model_copy(update={"sessions": [one.model_copy(update={"count": 1}) for one in whole.sessions]})


@pytest.mark.parametrize("name", ["traffic-lte.toml", "depth-5g.toml"])
def test_scenario_device_streams_without_reconnecting(name: str) -> None:
    document, _ = live_scenario.live(_scenario(name, 4.0), has_links=False)
    figures = document["sessions"]
    assert figures["reconnects"] == 0
    assert figures["sent"] > 10
    assert document["warm"] > figures["sent"] / 2
