"""Random scenarios with random faults: nothing is lost, nothing is over the memory, and a second run is the same.

More seeds: `scripts/bench soak`.
"""

import pytest

from appliance.lab.scenario import megabytes
from appliance.lab.simulation import simulate
from tests.harness.lanes import seeds
from tests.lab.random_scenarios import random_scenario

pytestmark = pytest.mark.gate("whole simulations")


@pytest.mark.parametrize("seed", seeds(gate=4, nightly=100))
def test_random_scenario_answers_every_request_once_within_memory(seed: int) -> None:
    scenario = random_scenario(seed)
    outcome = simulate(
        scenario
    ).outcome  # raises by itself: memory, pins, runs and the number of answers are checked as it goes
    assert outcome.memory_peak_bytes <= megabytes(scenario.box.memory_mb or 0)
    figures = outcome.document()
    assert figures["requests"] == sum(
        len([a for a in outcome.answers if a.application == n]) for n in outcome.applications
    )
    if seed < 10:
        assert simulate(scenario).outcome.answers == outcome.answers
