"""The ring of decisions."""

from appliance.runtime.decisions.ring import Decision, DecisionRing
from tests.fakes.hand_clock import HandClock


def test_ring_keeps_the_last_with_their_time() -> None:
    """Oldest first, bounded, with the moment of each."""
    clock = HandClock()
    ring = DecisionRing(clock, len_max=2)
    for i in range(3):
        ring.record("eviction", {"i": i})
        clock.pass_s(1)
    start_ns = HandClock().now_ns()
    assert ring.recent() == [
        Decision(start_ns + 10**9, "eviction", {"i": 1}),
        Decision(start_ns + 2 * 10**9, "eviction", {"i": 2}),
    ]
