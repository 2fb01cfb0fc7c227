"""Simulate and adjust (Algorithm 1) against worked examples."""

import pytest

from appliance.policies.offload.adjust import adjust, coordinate, simulate
from appliance.policies.offload.base import Client, OffloadInput
from appliance.policies.offload.fleet import fleet_of
from appliance.policies.offload.ledger import opening

FRAMES = {1: 1.5, 2: 2.0, 3: 2.5}
"""Latency in frames by size; at 1000 fps a frame is a millisecond."""


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        ([2, 2, 3, 3, 3, 1], [(0.0, 2), (2.0, 3), (4.5, 1)]),
        ([3, 3, 1, 3], [(0.0, 2), (2.0, 1), (3.5, 1)]),
    ],
)
def test_batch_is_the_longest_run_that_all_its_members_allow(
    allowed: list[int], expected: list[tuple[float, int]]
) -> None:
    """Sizes and starts of two requests lists, derived by hand from Algorithm 1."""
    clients = tuple(Client(f"c{k}", 0.01, 1.0, 0.0, 0.0) for k in range(len(allowed)))
    fleet = fleet_of(OffloadInput(1000.0, 0.0, 100.0, FRAMES, waiting=clients, grace=0.0))
    slots = adjust(fleet, opening(fleet), range(len(allowed)), allowed)
    assert [(start, len(requests)) for start, _, requests in slots] == expected


def test_request_carries_the_frame_of_its_batch_start() -> None:
    """A batch at 4.5 ms takes the frame captured at 4 ms, whenever the request would have come."""
    clients = tuple(Client(f"c{k}", 0.01, 1.0, 0.0, 0.0) for k in range(6))
    fleet = fleet_of(OffloadInput(1000.0, 0.0, 100.0, FRAMES, waiting=clients, grace=0.0))
    slots = adjust(fleet, opening(fleet), range(6), [2, 2, 3, 3, 3, 1])
    assert [frame for _, _, requests in slots for _, frame in requests] == [0, 0, 2, 2, 2, 4]


def test_batch_starts_a_grace_period_into_its_slot() -> None:
    """With 10 % grace the second slot begins at 2.2 ms, so its batch of 3 starts at 2.2 + 0.25 ms."""
    clients = tuple(Client(f"c{k}", 0.01, 1.0, 0.0, 0.0) for k in range(5))
    fleet = fleet_of(OffloadInput(1000.0, 0.0, 100.0, FRAMES, waiting=clients, grace=0.1))
    starts = [start for start, _, _ in adjust(fleet, opening(fleet), range(5), [2, 2, 3, 3, 3])]
    assert starts == pytest.approx([0.2, 2.45])


def test_simulated_arrivals_follow_from_last_arrival_and_interval() -> None:
    """Intervals 3 and 4 from frames 6 and 5: 9, 9, 12, 13, 15, 17 (ties by name)."""
    clients = (
        Client("a", 0.01, 1.0, 0.0, 0.0, 6, 6.0),
        Client("b", 0.01, 1.0, 0.0, 0.0, 5, 5.0),
    )
    fleet = fleet_of(OffloadInput(1000.0, 6.0, 100.0, FRAMES, clients=clients))
    order = simulate(fleet, opening(fleet), [0, 1], [3, 4])
    assert [next(order) for _ in range(6)] == [0, 1, 0, 1, 0, 1]


def test_plan_ends_when_too_few_clients_are_left_for_the_smallest_batch() -> None:
    """The network runs two at once and no fewer: after two of three clients no batch can be formed with the third."""
    clients = tuple(Client(f"c{k}", 0.01, 1.0, 0.0, 0.0) for k in range(3))
    fleet = fleet_of(OffloadInput(1000.0, 0.0, 100.0, {2: 4.0}, waiting=clients, grace=0.0))
    assert adjust(fleet, opening(fleet), [0, 1, 2], [2, 2, 2]) == [(0.0, 0, [(0, 0), (1, 0)])]


def test_coordinate_after_ten_days_orders_no_frame_too_early() -> None:
    """Frame 51 840 001 is captured ten days after the first one. Floats of that size end a hair below it, and the frame
    before it may not be ordered any more."""
    client = Client("a", 0.01, 1.0, 3.3, 0.0)
    fleet = fleet_of(OffloadInput(60.0, 864e6, 1000.0, FRAMES, waiting=(client,)))
    earliest = [51_840_001]
    start, placed = coordinate(fleet, earliest, [0], 864e6, 0.0)
    assert placed == [(0, 51_840_001)]
    assert earliest == [51_840_002]
    assert start == pytest.approx(51_840_001 / 0.06 + 3.3)
