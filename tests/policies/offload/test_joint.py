"""The joint choice of variants: worth it where one network does not fit all, never a loss, kept while nobody waits."""

from dataclasses import replace

import pytest

from appliance.policies.offload.base import OffloadInput
from appliance.policies.offload.earliest_due import EarliestDue
from appliance.policies.offload.joint import choices
from tests.checkers.offload import check
from tests.instances.offload.rolling import Stay, carry_out, snapshot
from tests.instances.offload.variants import SPREAD, TWO_TIERS, UNIFORM, ZOOS, only, zoo_scene


def _best_fixed(problem: OffloadInput, names: list[str]) -> int:
    return max(len(EarliestDue().plan(only(problem, name)).clients) for name in names)


@pytest.mark.parametrize("zoo", ["sizes", "spread"])
@pytest.mark.parametrize("tiers", [TWO_TIERS, UNIFORM])
def test_a_joint_choice_serves_no_fewer_than_the_best_variant(zoo: str, tiers: tuple[tuple[float, float], ...]) -> None:
    """Thirty clients on two links, every SLA re-checked frame by frame."""
    problem = zoo_scene(2, 30, tiers, ZOOS[zoo])
    plan = EarliestDue().plan(problem)
    assert check(problem, plan).faults == ()
    assert len(plan.clients) >= _best_fixed(problem, [row[0] for row in ZOOS[zoo]])


def test_far_apart_networks_pay_with_uniform_slas_too() -> None:
    """Sixty clients, SLAs uniform in 0.02-0.06, three scenes: at least 1.1 times the best fixed network together."""
    names = [row[0] for row in SPREAD]
    scenes = [zoo_scene(seed, 60, UNIFORM, SPREAD) for seed in range(3)]
    joint = sum(len(EarliestDue().plan(scene).clients) for scene in scenes)
    assert joint >= 1.1 * sum(_best_fixed(scene, names) for scene in scenes)


def test_a_reluctant_choice_moves_fewer_clients_off_the_accurate_network() -> None:
    """Among the choices of one set, those that ask for more savings keep more clients on the reference network."""
    problem = zoo_scene(1, 40, UNIFORM, SPREAD)
    accurate = SPREAD[0][0]
    numbers = [
        sum(variant.name == accurate for variant in promise.choice.values())
        for promise in choices(problem)
        if promise.chosen == tuple(sorted(row[0] for row in SPREAD))
    ]
    assert len(numbers) > 1
    assert len(set(numbers)) == len(numbers)


def test_nobody_changes_networks_while_nobody_waits() -> None:
    """The second plan serves everybody on the variant of the first."""
    first = zoo_scene(1, 24)
    plan = EarliestDue().plan(first)
    variant = {s.name: s.variant for s in plan.clients}
    now = first.now_ms + 200.0
    stays = {c.name: Stay(c, 1e18) for c in first.waiting if c.name in variant}
    batches = tuple(b for b in plan.batches if b.start_ms >= now)
    running = {b.start_ms: b for b in plan.batches if b.start_ms < now}
    tables = {name: table for name, _, _, table in ZOOS["sizes"]}
    for batch in running.values():
        carry_out((batch,), stays, tables[batch.variant or ""], first.now_ms)
    last = running[max(running)]
    busy = last.start_ms + tables[last.variant or ""][len(last.requests)]
    second = replace(
        first,
        now_ms=now,
        clients=tuple(snapshot(stay, now) for stay in stays.values()),
        waiting=(),
        busy_until_ms=busy,
        previous=(*running.values(), *batches),
    )
    following = EarliestDue().plan(second)
    assert check(second, following).faults == ()
    assert {s.name: s.variant for s in following.clients} == variant
