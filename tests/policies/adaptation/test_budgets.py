"""Latency budgets and the boundaries of eq. 5 and 6."""

import pytest

from appliance.policies.adaptation import ADAPTATION_POLICIES as ADAPTATION
from appliance.policies.adaptation.base import AdaptationInput, Client, Network
from appliance.policies.adaptation.budgets import (
    batch_for,
    fits_latency,
    fits_rate,
    latency_budget_ms,
    link_keeps_up,
)


def test_latency_budget_is_slo_less_link_time() -> None:
    """100 ms, a frame of 55.57 kbit at 10240 kbit/s: 5.43 ms on the link, 94.57 ms left, a network of at most 47.29
    ms.
    """
    network = Network("n", 0.5, 55.57 * 1024 / 8, {1: 47.28})
    client = Client("c", 10, 100.0, 10240 * 1024)

    budget = latency_budget_ms(client, network)

    assert budget == pytest.approx(94.57, abs=0.005)
    assert fits_latency(47.28, budget)
    assert not fits_latency(47.30, budget)


def test_latency_and_rate_constraints_hold_at_their_boundary() -> None:
    """Exactly twice the latency fits, exactly the throughput fits, also where floats add up badly; a millionth more
    does not.
    """
    assert fits_latency(50.0, 100.0)
    assert not fits_latency(50.0001, 100.0)
    assert fits_rate(0.1 + 0.2, 0.3)
    assert not fits_rate(40.00001, 40.0)


def test_batch_chosen_is_the_fastest_that_carries_the_rate() -> None:
    """40 requests per second need batch 2 (50 a second); with a tight client nothing serves them."""
    network = Network("n", 0.5, 0, {1: 30.0, 2: 40.0, 4: 60.0})
    easy, tight = Client("a", 40, 200.0, 1e6), Client("b", 1, 70.0, 1e6)

    assert batch_for(network, [easy]) == 2
    assert batch_for(network, [tight]) == 1
    assert batch_for(network, [easy, tight]) is None


@pytest.mark.parametrize("policy", sorted(ADAPTATION))
def test_frame_size_never_exceeds_what_the_link_keeps_up_with(policy: str) -> None:
    """A second is time enough for a frame of any size; but a frame comes every 50 ms."""
    networks = tuple(Network(f"n{kb}", kb / 100.0, kb * 1000.0, {1: 5.0}) for kb in (10, 40, 60, 90))
    client = Client("c", 20.0, 1000.0, 8e6, transfer_ms_max=45.0)
    assert link_keeps_up(client, networks[1])
    assert not link_keeps_up(client, networks[2])
    plan = ADAPTATION[policy]().plan(AdaptationInput(networks, 1, (client,)))
    assert [worker.network for worker in plan.workers] == ["n40"]
