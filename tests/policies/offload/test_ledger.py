"""What each client has when a plan begins."""

from appliance.policies.offload.base import Batch, Client, OffloadInput
from appliance.policies.offload.fleet import fleet_of
from appliance.policies.offload.ledger import opening
from appliance.policies.offload.verify import mean_strides


def test_opening_with_a_result_after_the_horizon_shows_nothing() -> None:
    """The batch that runs ends at 105 ms, and its result is there 1.5 s later; the horizon ends before frame 66, and no
    display of it counts."""
    client = Client("a", 0.01, 0.1, 5.0, 1500.0, 5, 88.3)
    running = Batch(95.0, None, (("a", 5),))
    fleet = fleet_of(OffloadInput(60.0, 100.0, 1000.0, {1: 10.0}, (client,), busy_until_ms=105.0, previous=(running,)))
    state = opening(fleet)
    assert (fleet.display_from, fleet.display_to) == (6, 66)
    assert (state.shown, state.since, state.counted, state.total) == ([5], [66], [66], [0])
    assert mean_strides(fleet, state, [0], []) == {0: float("inf")}
