"""Which frames fit a rate."""

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.runtime.pipelines.pacing import Pacing


def test_pacing_takes_frames_evenly_up_to_the_rate() -> None:
    """Of 40 frames a second 10 fit, evenly; a pair may come at once, and a pause is no credit beyond that."""
    pacing = Pacing(0)
    taken = [pacing.take(10.0, index * 25 * NS_PER_MS) for index in range(400)]
    assert 98 <= sum(taken) <= 102
    assert [pacing.take(10.0, 100 * NS_PER_S) for _ in range(4)] == [True, True, False, False]
    assert not pacing.take(0.0, 200 * NS_PER_S)
