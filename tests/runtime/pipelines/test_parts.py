"""Stages whose networks serve in parts: what they are offered as, and what a definition counts on."""

from dataclasses import replace

import pytest

from appliance.domain.catalogue import TaskKind
from appliance.domain.errors import SloTooSmall
from appliance.domain.pipeline import Ask, CostBy, Pipeline
from appliance.domain.pipeline_graph import Graph
from appliance.policies.allocation.base import AllocationPlan
from appliance.policies.allocation.frontier import Frontier
from appliance.policies.allocation.several import Served, at_rate
from appliance.runtime.pipelines.accounts import UNPRICED, Tariff, Watts
from appliance.runtime.pipelines.definition import check, fastest_ms
from appliance.runtime.pipelines.offers import offers_of
from appliance.runtime.pipelines.plans import _in_parts
from appliance.runtime.pipelines.problem import Asked, Group, Machine, Subject, asked, stage_plans
from appliance.runtime.pipelines.windows import Observed
from tests.fakes.clock import story
from tests.runtime.serving.parts_bench import bench_of

STAGE = Ask(name="look", application_id="t/app")


@story
async def test_network_in_parts_is_offered_as_a_single_variant() -> None:
    """6 ms in parts, 5 of them on the other kind; 20 whole, on the first one."""
    bench = bench_of()
    (offer,) = offers_of(STAGE, bench.catalogue.entry("t/app"), bench.catalogue.able_kinds, lambda build: False).wanted
    assert offer.is_in_parts
    assert (offer.serves_on, [one.kind for one in offer.profiles]) == ("npu", ["npu"])
    assert 6 <= offer.quickest_ms < 7
    assert offer.profile_of("cpu+npu") is offer.profiles[0]
    assert offer.profile_of("cpu") is None
    entry = bench_of(cut=False).catalogue.entry("t/app")
    (whole,) = offers_of(STAGE, entry, lambda one: ("cpu",), lambda build: False).wanted
    assert (whole.is_in_parts, whole.serves_on, whole.quickest_ms) == (False, "cpu", 20)


@story
async def test_slo_that_a_network_in_parts_keeps_is_accepted() -> None:
    pipeline = Pipeline("t/p", "t", "p", 10.0, (STAGE,))
    catalogue = bench_of().catalogue
    assert 6 <= fastest_ms(catalogue, pipeline)["look"] < 7
    check(catalogue, pipeline)
    with pytest.raises(SloTooSmall):
        check(bench_of(cut=False).catalogue, pipeline)


TOGETHER = (Group("cores", ("cpu", "npu"), 2, has_host=True),)
APART = (Group("cores", ("cpu",), 2, has_host=True), Group("card", ("npu",), 1, is_device=True))


def _asked(
    groups: tuple[Group, ...], tariff: Tariff = UNPRICED, cost_by: CostBy = CostBy.SECONDS
) -> tuple[Asked, Machine]:
    catalogue = bench_of().catalogue
    entry = catalogue.entry("t/app")
    pipeline = Pipeline("t/p", "t", "p", 100.0, (STAGE,), cost_by=cost_by)
    machine = Machine.made(groups, tariff, 1)
    subject = Subject(pipeline, Graph.of((STAGE,), {"t/app": TaskKind.TENSOR}), {"t/app": entry}, Observed())
    offers = {"look": offers_of(STAGE, entry, catalogue.able_kinds, lambda build: False)}
    return asked(subject, machine, offers, tariff), machine


@story
async def test_parts_on_shared_cores_are_planned_on_a_single_worker() -> None:
    """The kinds take the same cores, so it is as if all parts ran on one kind: some 6 ms of a worker."""
    made, _ = _asked(TOGETHER)
    (profile,) = made.levels[0].modules[0].profiles
    assert (profile.worker, profile.draws) == ("npu", ())
    assert profile.throughput_rps == pytest.approx(1000 / profile.latency_ms)


@story
async def test_parts_on_separate_processors_are_planned_on_each() -> None:
    """5 ms on one, 1 on the other, and 0.15 for each further run: an item takes what the quickest sequence takes there,
    while the other processor is free; and a plan has both.
    """
    made, _ = _asked(APART)
    (profile,) = made.levels[0].modules[0].profiles
    (draw,) = profile.draws
    assert (profile.worker, draw.worker) == ("npu", "cpu")
    assert profile.throughput_rps is not None
    npu_ms = 1000 / profile.throughput_rps
    assert 5.0 <= npu_ms < 5.4
    assert 1.0 <= draw.share * npu_ms < 1.4
    assert profile.latency_ms == pytest.approx(npu_ms + draw.share * npu_ms)
    plan: AllocationPlan = Frontier().plan(at_rate(made.levels[0], 100.0))
    taken = {place.worker: sum(part.share for part in place.parts) for place in plan.placement}
    assert taken == pytest.approx({"npu": npu_ms / 10, "cpu": draw.share * npu_ms / 10})
    assert plan.cost == pytest.approx(sum(taken.values())), "processor-seconds a second, of both"
    stages = stage_plans(made, Served("look", 0, 0, 100.0, (), plan))
    assert stages[0].drawn == pytest.approx({"cpu": taken["cpu"]})
    (said,) = _in_parts(stages, made)
    assert said == f"look serves in parts, most of it on npu, and {taken['cpu']:.2g} workers of cpu"
    for drawn, told in ((1.0, "1 worker"), (2.5, "2.5 workers"), (0.00002, "less than 0.01 workers")):
        (said,) = _in_parts([replace(stages[0], drawn={"cpu": drawn})], made)
        assert said.endswith(f", and {told} of cpu")


@story
async def test_energy_of_parts_includes_watts_of_the_other_processor() -> None:
    watts = {"cpu": 10.0, "npu": 2.0, "host": 10.0}
    tariff = Tariff(lambda kind: Watts(watts[kind], "declared"), {})
    made, _ = _asked(APART, tariff, CostBy.ENERGY)
    (profile,) = made.levels[0].modules[0].profiles
    assert profile.power_w == pytest.approx(2.0 + 10.0 * profile.draws[0].share)


@story
async def test_part_of_a_kind_that_has_gone_counts_on_the_worker_left() -> None:
    """Its processors went the moment before."""
    machine = Machine.made((Group("card", ("npu",), 1, is_device=True),), UNPRICED, 1)
    assert machine.busy_ms("npu", {"npu": 5.0, "cpu": 1.0}) == {"npu": 6.0}
