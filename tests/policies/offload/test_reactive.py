"""The baselines' batches against worked examples; at 1000 fps a frame is a millisecond."""

import pytest

from appliance.policies.offload.base import Client, OffloadInput, Variant
from appliance.policies.offload.fleet import Settings, fleet_of
from appliance.policies.offload.ledger import Slot, opening
from appliance.policies.offload.reactive import Reactive, batch_as_they_come


def _run(first: str, second: str) -> tuple[list[Slot], set[int]]:
    """Two clients whose requests arrive at 10 ms, on these variants."""
    clients = tuple(
        Client(name, 0.01, 0.1, 0.0, 0.0, 0, 0.0, variants=(Variant(variant, 0.0, 0.0, {1: 2.0, 2: 3.0}),))
        for name, variant in (("a", first), ("b", second))
    )
    fleet = fleet_of(OffloadInput(1000.0, 1.0, 14.0, {1: 5.0}, clients))
    return batch_as_they_come(fleet, opening(fleet), [0, 1], Settings([2, 2], [10, 10], [0.0, 0.0]))


def test_requests_on_the_same_variant_arriving_together_are_batched() -> None:
    assert _run("x", "x") == ([(10.0, 1, [(0, 10), (1, 10)])], set())


def test_requests_on_two_variants_arriving_together_run_in_sequence() -> None:
    """The second request slips the first batch."""
    assert _run("x", "y") == ([(10.0, 1, [(0, 10)]), (12.0, 2, [(1, 10)])], {1})


def test_baseline_without_a_tuning_cannot_plan() -> None:
    """Not even without clients."""
    nothing = Reactive("nothing", lambda problem: ())
    with pytest.raises(ValueError, match="nothing has no tuning"):
        nothing.plan(OffloadInput(60.0, 0.0, 1000.0, {1: 20.0}))
