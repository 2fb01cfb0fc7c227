"""Where planners compute."""

import pytest

from appliance.clock import SystemClock
from appliance.policies.adaptation.base import AdaptationInput, Client, Network
from appliance.runtime.sessions.deciding import Decisions

pytestmark = pytest.mark.anyio

PROBLEM = AdaptationInput(
    networks=(Network("a", 50.0, 9000, {1: 10.0}), Network("b", 60.0, 20000, {1: 20.0})),
    workers=2,
    clients=(Client("one", 10, 100, 1e7), Client("two", 10, 100, 1e7)),
)


async def test_long_decisions_go_to_a_process_of_their_own() -> None:
    """The first one shows how long they take; the answer is the same."""
    deciding = Decisions(SystemClock(), "exchange", "earliest-due", in_place_ms_max=1e-6)
    try:
        here = await deciding.adapt(PROBLEM)
        assert deciding.elsewhere == 0
        there = await deciding.adapt(PROBLEM)
        assert deciding.elsewhere == 1
        assert there == here
        assert deciding.count == 2
    finally:
        await deciding.close()


async def test_a_planner_that_dies_is_begun_anew() -> None:
    """Its process is killed: the decision is made all the same."""
    deciding = Decisions(SystemClock(), "exchange", "earliest-due", in_place_ms_max=1e-6)
    try:
        here = await deciding.adapt(PROBLEM)
        await deciding.adapt(PROBLEM)
        process = deciding._processes["adaptation"]._process
        assert process is not None
        process.kill()
        assert await deciding.adapt(PROBLEM) == here
        assert await deciding.adapt(PROBLEM) == here
    finally:
        await deciding.close()
