"""Every policy's plans: all constraints re-checked frame by frame, order does not matter, the head of a plan is
kept.
"""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.policies.offload import OFFLOAD_POLICIES
from appliance.policies.offload.base import Client, OffloadInput
from tests.checkers.offload import check
from tests.harness.lanes import examples
from tests.instances.offload.random_scenes import drawn
from tests.instances.offload.rolling import play
from tests.instances.offload.scenes import waiting_scene
from tests.instances.offload.variants import only, zoo_scene

pytestmark = pytest.mark.gate("hundreds of problems are solved")

QUICK = [name for name in OFFLOAD_POLICIES if "searched" not in name]
"""The searching baselines plan dozens of times; the policies under them are among these."""


@pytest.mark.parametrize("name", OFFLOAD_POLICIES)
@given(seed=st.integers(0, 10**6))
@examples(gate=15)
def test_plan_keeps_every_constraint(name: str, seed: int) -> None:
    """Starts, arrivals, orders in time, sizes, SLAs, told drops: re-checked in exact arithmetic by code of its own."""
    problem = drawn(seed, clients_max=10)
    assert check(problem, OFFLOAD_POLICIES[name]().plan(problem)).faults == ()


@pytest.mark.parametrize("name", QUICK)
@given(seed=st.integers(0, 10**6))
@examples(gate=10)
def test_plan_depends_on_no_order_of_clients(name: str, seed: int) -> None:
    problem = drawn(seed, clients_max=10)
    random = Random(seed)
    shuffled = replace(
        problem,
        clients=tuple(random.sample(problem.clients, len(problem.clients))),
        waiting=tuple(random.sample(problem.waiting, len(problem.waiting))),
    )
    assert OFFLOAD_POLICIES[name]().plan(shuffled) == OFFLOAD_POLICIES[name]().plan(problem)


@pytest.mark.parametrize("name", ["arise", "earliest-due"])
@pytest.mark.parametrize("sla", ["0.02", "mixed"])
def test_consecutive_plans_keep_every_constraint(name: str, sla: str) -> None:
    """Three seconds of coming and going over 5G: no gap, no frame twice, no SLA broken at any of fifteen plans."""
    played = play(OFFLOAD_POLICIES[name](), 5, "depth", "5G", sla, seconds=3.0, warm_up_s=1.0, checked=True)
    assert played.faults == []
    assert played.served_mean > 5


@pytest.mark.parametrize("name", ["arise", "earliest-due"])
def test_promised_batches_head_the_next_plan(name: str) -> None:
    """Batches with a frame captured before a new order arrives are the same in the next plan (AR-17)."""
    first = waiting_scene(3, "depth", "LTE", "mixed", clients=12)
    plan = OFFLOAD_POLICIES[name]().plan(first)
    clients = tuple(c for c in first.waiting if c.name in plan.admitted)
    now = first.now_ms + 200.0
    later = replace(first, now_ms=now, clients=clients, waiting=(), previous=plan.batches)
    down = {c.name: c.downlink_ms for c in clients}
    promised = [
        b for b in plan.batches if b.start_ms >= now and any(1000.0 * f / 60.0 < now + down[n] for n, f in b.requests)
    ]
    assert promised
    following = OFFLOAD_POLICIES[name]().plan(later).batches
    assert [b.requests for b in following[: len(promised)]] == [b.requests for b in promised]


def test_default_serves_a_tenth_more_mixed_clients_than_arise() -> None:
    """SLAs from 0.02 to 0.06, depth network, both links, three seeds: at least a tenth more together, never fewer."""
    plain, ours = [], []
    for link in ("5G", "LTE"):
        for seed in range(3):
            scene = waiting_scene(seed, "depth", link, "mixed")
            plain.append(len(OFFLOAD_POLICIES["arise"]().plan(scene).clients))
            ours.append(len(OFFLOAD_POLICIES["earliest-due"]().plan(scene).clients))
    assert sum(ours) >= 1.1 * sum(plain)
    assert all(more >= fewer for more, fewer in zip(ours, plain, strict=True))


def test_choice_of_variants_serves_more_than_the_best_single_variant() -> None:
    """Two tiers of SLAs: strict clients on the large network, the others on the small one.

    1.15 here; the benchmark has the mean over more seeds.
    """
    policy = OFFLOAD_POLICIES["earliest-due"]()
    scene = zoo_scene(1)
    plan = policy.plan(scene)
    assert check(scene, plan).faults == ()
    best = max(len(policy.plan(only(scene, name)).clients) for name in ("large", "medium", "small"))
    assert len(plan.clients) >= 1.15 * best


def test_client_that_no_plan_can_serve_is_removed_and_others_stay() -> None:
    """An SLA below what the reference setup gives on this link: the client is removed, the reason says so, and the
    other client stays."""
    good = Client("good", 0.005, 0.05, 10.0, 5.0)
    hopeless = Client("hopeless", 0.05, 0.001, 10.0, 5.0, 1, 30.0, 1, 60.0)
    problem = OffloadInput(60.0, 500.0, 1000.0, {1: 20.0, 2: 26.0}, clients=(good, hopeless))
    for name in ("arise", "earliest-due"):
        plan = OFFLOAD_POLICIES[name]().plan(problem)
        assert plan.removed == ("hopeless",)
        assert [c.name for c in plan.clients] == ["good"]
        assert "served no more, for the promises of all cannot be kept" in plan.reason


def test_plan_without_clients_is_empty() -> None:
    for name in OFFLOAD_POLICIES:
        plan = OFFLOAD_POLICIES[name]().plan(OffloadInput(60.0, 0.0, 1000.0, {1: 20.0}))
        assert (plan.clients, plan.batches) == ((), ())
