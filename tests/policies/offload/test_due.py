"""Batches by urgency against worked examples; at 1000 fps a frame is a millisecond."""

from appliance.policies.offload.base import Client, OffloadInput
from appliance.policies.offload.due import Patience, pack_due
from appliance.policies.offload.fleet import fleet_of
from appliance.policies.offload.ledger import Slot, opening

PUNCTUAL = Patience(join=1.0, lead=1.0)
"""No request runs before the end of its period."""


def _packed(problem: OffloadInput, batch: int, period_ms: float) -> list[Slot]:
    fleet = fleet_of(problem)
    count = len(fleet.clients)
    return pack_due(fleet, opening(fleet), range(count), [batch] * count, [period_ms] * count, PUNCTUAL)


def test_pack_due_with_a_smallest_batch_of_two_waits_for_a_second_request() -> None:
    """The first client is due at 0; an order reaches the second one at 7 ms. Then both, every 50 ms."""
    clients = (Client("a", 0.01, 1.0, 0.0, 0.0), Client("b", 0.01, 1.0, 0.0, 7.0))
    problem = OffloadInput(1000.0, 0.0, 100.0, {2: 10.0}, waiting=clients, grace=0.0)
    assert _packed(problem, 2, 50.0) == [(7.0, 0, [(0, 7), (1, 7)]), (57.0, 0, [(0, 57), (1, 57)])]


def test_pack_due_with_a_smallest_batch_of_two_never_runs_a_single_request() -> None:
    """No second request ever joins."""
    problem = OffloadInput(1000.0, 0.0, 100.0, {2: 10.0}, waiting=(Client("a", 0.01, 1.0, 0.0, 0.0),), grace=0.0)
    assert _packed(problem, 2, 50.0) == []


def test_pack_due_with_less_grace_than_counted_orders_no_frame_too_early() -> None:
    """A client that should run in batches of two, which take 10 ms, is expected a tenth of it after its first frame,
    10, has come. Alone it takes 20 ms, and a tenth of that before the start lies frame 9, which no order reaches."""
    client = Client("a", 0.01, 1.0, 0.0, 0.0)
    problem = OffloadInput(1000.0, 10.0, 15.0, {1: 20.0, 2: 10.0}, waiting=(client,), grace=0.1)
    assert _packed(problem, 2, 50.0) == [(11.0, 0, [(0, 10)])]
