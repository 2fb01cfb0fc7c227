"""What the clients of a problem come to as columns."""

from collections.abc import Mapping

import pytest

from appliance.policies.offload.base import Client, OffloadInput, Variant
from appliance.policies.offload.fleet import fleet_of


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({1: 10.0, 2: 14.0}, {1: 9.0, 2: 15.0, 4: 30.0}, {1: 10.0, 2: 15.0}),
        ({1: 10.0, 2: 14.0}, {1: 10.0, 2: 14.0}, {1: 10.0, 2: 14.0}),
        ({1: 10.0}, {2: 15.0}, {1: 10.0}),
    ],
)
def test_variant_on_which_clients_disagree_takes_the_longest_time(
    first: Mapping[int, float], second: Mapping[int, float], expected: Mapping[int, float]
) -> None:
    """For the sizes that all of them know; where there are none, the first client by name is believed."""
    clients = tuple(
        Client(name, 0.01, 0.1, 5.0, 5.0, variants=(Variant("small", 0.01, 4.0, table),))
        for name, table in (("a", first), ("b", second))
    )
    fleet = fleet_of(OffloadInput(60.0, 0.0, 1000.0, {1: 30.0}, waiting=clients))
    assert [(network.name, network.latency_ms) for network in fleet.networks] == [
        (None, {1: 30.0}),
        ("small", expected),
    ]
