"""Algorithm 2: its schedule, its two modes, its start."""

from dataclasses import replace

from appliance.policies.adaptation.annealing import COOLING, TEMPERATURE_MIN, TEMPERATURE_START, Jellyfish
from appliance.policies.adaptation.base import AdaptationInput, Client, Network
from tests.instances.adaptation import drawn, yolo

SMALL = Network("small", 0.2, 0.0, {1: 10.0})
LARGE = Network("large", 0.5, 0.0, {1: 40.0})


def test_schedule_has_321_steps() -> None:
    """T from 0.0125 to 0.0005 by 0.99, as the authors' simulator has it."""
    steps, temperature = 0, TEMPERATURE_START
    while temperature > TEMPERATURE_MIN:
        steps, temperature = steps + 1, temperature * COOLING

    assert steps == 321


def test_overload_degrades_and_relief_upgrades() -> None:
    """From two large networks the load of 100 a second forces a small one; when it falls, accuracy comes back, from the previous plan."""
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


def test_zoo_is_filtered_before() -> None:
    """640 px, larger and less accurate than 608 px, is never chosen, even where it would fit."""
    problem = AdaptationInput(yolo()[-2:], 1, (Client("c", 5.0, 500.0, 1e9),), seed=0)

    assert [w.network for w in Jellyfish().plan(problem).workers] == ["yolo-608"]
