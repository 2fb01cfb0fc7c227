"""Algorithm 2: its schedule, its two modes, its start."""

from dataclasses import replace

import pytest

from appliance.policies.adaptation.annealing import COOLING, TEMPERATURE_MIN, TEMPERATURE_START, Jellyfish
from appliance.policies.adaptation.base import AdaptationInput, Client, Network
from tests.instances.adaptation import drawn, yolo

SMALL = Network("small", 0.2, 0.0, {1: 10.0})
LARGE = Network("large", 0.5, 0.0, {1: 40.0})


def test_annealing_schedule_has_321_steps() -> None:
    """T from 0.0125 to 0.0005 by 0.99, as the authors' simulator has it."""
    steps, temperature = 0, TEMPERATURE_START
    while temperature > TEMPERATURE_MIN:
        steps, temperature = steps + 1, temperature * COOLING

    assert steps == 321


def test_networks_degrade_under_overload_and_upgrade_on_relief() -> None:
    """From two large networks the load of 100 a second forces a small one; when it falls, accuracy comes back, from
    the previous plan.
    """
    crowd = tuple(Client(f"c{i}", 25.0, 100.0, 1e6) for i in range(4))
    overload = Jellyfish().plan(AdaptationInput((SMALL, LARGE), 2, crowd, previous=("large", "large"), seed=1))
    relief = Jellyfish().plan(
        AdaptationInput((SMALL, LARGE), 2, crowd[:2], previous=tuple(w.network for w in overload.workers), seed=1)
    )

    assert not overload.unmapped
    assert "small" in [w.network for w in overload.workers]
    assert [w.network for w in relief.workers] == ["large", "large"]


def test_upgrade_never_loses_a_client() -> None:
    """What DEGRADE maps stays mapped: as many as the smallest networks alone map, over many seeds."""
    for seed in range(20):
        problem = drawn(seed, 2, 6)
        only_smallest = replace(problem, networks=yolo()[:1])

        assert len(Jellyfish().plan(problem).unmapped) <= len(Jellyfish().plan(only_smallest).unmapped)


def test_larger_and_less_accurate_network_is_never_chosen() -> None:
    """640 px, larger and less accurate than 608 px, is never chosen, even where it would fit."""
    problem = AdaptationInput(yolo()[-2:], 1, (Client("c", 5.0, 500.0, 1e9),), seed=0)

    assert [w.network for w in Jellyfish().plan(problem).workers] == ["yolo-608"]


def test_quicker_precision_of_equal_size_is_found() -> None:
    """int8 runs in half the time at nearly the accuracy, at 128 and at 160 px.

    Four clients of 40 a second on one worker need the 6 ms of int8 at 128 px;
    from fp32 at 160 px the way there leads past fp32 at 128 px, which is slower than the int8 of 160 px before it."""
    zoo = (
        Network("int8-128", 0.28, 100, {1: 6.0}),
        Network("fp32-128", 0.30, 100, {1: 12.0}),
        Network("int8-160", 0.31, 200, {1: 8.0}),
        Network("fp32-160", 0.33, 200, {1: 16.0}),
    )
    clients = tuple(Client(f"c{i}", 40.0, 100.0, 1e7) for i in range(4))
    for seed in range(5):
        plan = Jellyfish().plan(AdaptationInput(zoo, 1, clients, previous=("fp32-160",), seed=seed))

        assert [w.network for w in plan.workers] == ["int8-128"]
        assert plan.unmapped == ()


def test_precisions_of_equal_size_are_planned_with_their_own_latency() -> None:
    """fp32 takes 20 ms where int8 of the same size takes 45, too long for the SLO: fp32 serves the client."""
    zoo = Network("int8", 0.28, 100, {1: 45.0}), Network("fp32", 0.30, 100, {1: 20.0})

    plan = Jellyfish().plan(AdaptationInput(zoo, 1, (Client("c", 10.0, 80.0, 1e9),)))

    assert [w.network for w in plan.workers] == ["fp32"]


@pytest.mark.parametrize(
    ("client", "said"),
    [
        (Client("c", 10.0, 18.0, 1e9), "no network meets the SLO of 1 of them: two runs take longer (compute budget)"),
        (Client("c", 10.0, 100.0, 1e6), "no network meets the SLO of 1 of them over their link (network share)"),
        (Client("c", 120.0, 100.0, 1e9), "no worker carries the rate of 1 of them in time, even alone (rate)"),
    ],
)
def test_reason_names_the_budget_that_rejects_a_client(client: Client, said: str) -> None:
    """10 ms a run, frames of 12,500 bytes: 18 ms are less than two runs; 100 ms at 1 Mbit/s are all link; 120 a
    second are more than one worker does.
    """
    zoo = (Network("n", 0.2, 12_500.0, {1: 10.0}),)

    assert said in Jellyfish().plan(AdaptationInput(zoo, 2, (client,))).reason


def test_reason_names_the_budget_that_limits_accuracy() -> None:
    """No client has the large network: 40 ms twice is more than 70 ms, or more than what the link leaves of 90, or too
    much work beside another client; of two clients of 60 a second the workers have no room for one at all."""
    large = Network("large", 0.5, 12_500.0, {1: 40.0})
    small = replace(SMALL, input_bytes=100.0)

    def reason(*clients: Client, workers: int = 1) -> str:
        return Jellyfish().plan(AdaptationInput((small, large), workers, clients, seed=1)).reason

    assert reason(Client("c", 5.0, 70.0, 1e9)).endswith("; better networks are held back by compute budget for 1")
    assert reason(Client("c", 5.0, 90.0, 5e6)).endswith("; better networks are held back by network share for 1")
    assert reason(Client("c", 30.0, 200.0, 1e9)).endswith("; better networks are held back by rate for 1")
    both = Client("a", 20.0, 200.0, 1e9), Client("b", 20.0, 200.0, 1e9)
    assert reason(*both).endswith("; better networks are held back by worker capacity for 2")
    assert "better" not in reason(*both, workers=2)
    crowd = [Client(f"c{i}", 60.0, 200.0, 1e9) for i in range(2)]
    assert "for 1 of them the workers have no room (worker capacity)" in reason(*crowd)
