"""From what is measured to what a policy is offered: worker types, configurations and their times."""

from dataclasses import replace

import pytest

from appliance.domain.catalogue import Latency, TaskKind, TaskSpec, TensorSpec
from appliance.domain.catalogue import Profile as Measured
from appliance.domain.pipeline import Ask, Pipeline
from appliance.domain.pipeline_graph import Graph
from appliance.domain.runs_at_once import RunsAtOnce
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.pipelines.accounts import UNPRICED
from appliance.runtime.pipelines.composition import groups_of
from appliance.runtime.pipelines.figures import RanAs
from appliance.runtime.pipelines.offers import offers_of
from appliance.runtime.pipelines.problem import (
    Group,
    Machine,
    Subject,
    _item_ms,
    asked,
    assumed,
    rows_of,
    unmeasured,
)
from appliance.runtime.pipelines.windows import Observed
from appliance.runtime.ports import RunGroup
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost


def _measured(*rows: tuple[int, int, float]) -> Measured:
    """(batch, runs at once, milliseconds)."""
    latencies = tuple(Latency(batch, ms, ms, streams) for batch, streams, ms in rows)
    return Measured("gpu", 1, 1, 1.0, 1.0, latencies, kind="cuda")


def test_instance_is_a_worker_on_cores_and_all_streams_on_a_device() -> None:
    """On cores an instance is a worker, at what a run takes while the others are at work; on a device all its streams,
    as far as more of them bring more (SC-06). What was not measured is no choice (SC-05).
    """
    rows = _measured((1, 1, 10.0), (4, 1, 30.0), (1, 2, 14.0), (1, 4, 40.0), (8, 1, 70.0))
    cores = rows_of(rows, Group("cpu", ("cuda",), 2), 4)
    assert [(row.batch, row.concurrency, row.p50_ms) for row in cores] == [(1, 1, 14.0)]
    assert unmeasured(rows, Group("cpu", ("cuda",), 2), 4) == [(2, 2), (4, 2)]
    alone = _measured((1, 1, 10.0), (4, 1, 30.0))  # too short to be timed several at once
    assert [row.batch for row in rows_of(alone, Group("cpu", ("cuda",), 2), 4)] == [1, 4]
    assert unmeasured(alone, Group("cpu", ("cuda",), 2), 4) == [(2, 1)]
    device = rows_of(rows, Group("gpu", ("cuda",), 4, is_device=True), 4)
    assert [(row.batch, row.concurrency, row.p50_ms) for row in device] == [(1, 1, 10.0), (1, 2, 14.0), (4, 1, 30.0)]
    missing = [(2, 1), (2, 2), (2, 4), (4, 2), (4, 4)]
    assert unmeasured(rows, Group("gpu", ("cuda",), 4, is_device=True), 4) == missing


def test_workers_beyond_those_that_were_timed_at_once_add_no_capacity() -> None:
    """A profile of two workers on a box with four: they do four runs in the time of two and two, until four at once
    were timed. A device is offered what was timed; both name what is missing.
    """
    rows = _measured((1, 1, 10.0), (4, 1, 30.0), (1, 2, 14.0), (4, 2, 36.0))
    four = Group("cpu", ("cuda",), 4, at_once=RunsAtOnce(4, 4))
    assert [(row.batch, row.p50_ms) for row in rows_of(rows, four, 4)] == [(1, 28.0), (4, 72.0)]
    assert assumed(rows, four, 4) == [(1, 4), (4, 4)]
    assert unmeasured(rows, four, 4) == [(2, 4)]
    timed = _measured((1, 1, 10.0), (1, 2, 14.0), (1, 4, 20.0))
    assert [(row.batch, row.p50_ms) for row in rows_of(timed, four, 4)] == [(1, 20.0)]
    assert assumed(timed, four, 4) == []
    device = replace(four, is_device=True)
    assert [(row.batch, row.concurrency) for row in rows_of(rows, device, 4)] == [(1, 1), (1, 2), (4, 1), (4, 2)]
    assert (unmeasured(rows, device, 1), assumed(rows, device, 1)) == ([(1, 4)], [])


def test_batch_that_lacks_its_time_at_once_is_no_choice_though_it_is_the_only_one() -> None:
    """Nobody knows what it takes while the other worker is busy: its time alone would promise too much."""
    rows = _measured((1, 1, 10.0), (4, 1, 30.0), (4, 2, 36.0))
    two = Group("cpu", ("cuda",), 2, at_once=RunsAtOnce(2, 2))
    assert rows_of(rows, two, 1) == []
    assert unmeasured(rows, two, 1) == [(1, 2)]


def test_machine_has_worker_types_by_kind_and_processor_group() -> None:
    """Kinds on the same cores share them with CPU stages; a device is one worker of its own; of two groups of a kind
    each has a name; what takes no runs now is left out.
    """
    made = Machine.made(
        [Group("cpu", ("cpu", "openvino"), 2, has_host=True), Group("card", ("cuda",), 4, is_device=True)], UNPRICED, 3
    )
    assert [(one.name, one.available, one.pool) for one in made.workers] == [
        ("cpu", 2, "cpu-cores"),
        ("openvino", 2, "cpu-cores"),
        ("host", 2, "cpu-cores"),
        ("cuda", 1, "cuda"),
    ]
    twins = Machine.made([Group("big", ("cpu",), 2, has_host=True), Group("little", ("cpu",), 4)], UNPRICED, 3)
    assert [one.name for one in twins.workers] == ["big-cpu", "host", "little-cpu"]
    box = EngineBench()
    groups = [RunGroup("p", 2, box.processor, {"cpu": "", "openvino": ""})]
    assert groups_of(groups, ("cpu", "openvino"), {"openvino"}, ())[0].kinds == ("cpu",)
    alone = Machine.made([Group("card", ("cuda",), 4, is_device=True)], UNPRICED, 3)
    assert [(one.name, one.available) for one in alone.workers] == [("cuda", 1), ("host", 3)]


@pytest.mark.parametrize(("seen_ms", "at_once", "expected"), [(None, 1, 1.0), (30.0, 1, 1.5), (30.0, 2, 1.2)])
def test_ballooning_is_that_of_the_kind_that_serves(seen_ms: float | None, at_once: int, expected: float) -> None:
    """Inputs of free size: what items take is compared with what was measured on the kind that runs them, of as many
    runs at once, though another one is quicker.
    """
    box = EngineBench()
    free = (TensorSpec("x", "FP32", (-1, 3, -1, -1)),)
    box.add({"v": Cost(run_ms=20)}, name="read", task=TaskSpec(TaskKind.TEXT_RECOGNITION), inputs=free)
    catalogue: Catalogue = box.catalogue
    entry = catalogue.entry("t/read")
    servable = entry.servables["v"]
    assert servable.is_of_free_size
    assert servable.variant.profile is not None
    quick = replace(servable.variant.profile, kind="openvino", latencies=(Latency(1, 5.0, 5.0),))
    first = replace(servable.variant.profile, latencies=(Latency(1, 20.0, 20.0), Latency(1, 25.0, 25.0, 2)))
    both = replace(servable, variant=replace(servable.variant, profile=first, other_profiles=(quick,)))
    entry = replace(entry, order=(both,))
    stage = Ask(name="read", application_id="t/read")
    seen = {
        ("read", RanAs("v", "cpu", 1, at_once)): seen_ms or 0.0,
        ("read", RanAs("gone", "cpu", 1)): 500.0,  # of a variant that is not offered
        ("find", RanAs("v", "cpu", 1)): 500.0,
    }
    pipeline = Pipeline("t/p", "t", "p", 500.0, (stage,))
    observed = Observed(10.0, 0.0, 10, {"read": 1.0}, takes_as_ms={} if seen_ms is None else seen)
    graph = Graph.of((stage,), {"t/read": TaskKind.TEXT_RECOGNITION})
    machine = Machine.made([Group("cpu", ("cpu", "openvino"), 2, has_host=True)], UNPRICED, 2)
    offers = {"read": offers_of(stage, entry, lambda one: ("cpu", "openvino"), lambda build: False)}
    made = asked(Subject(pipeline, graph, {"t/read": entry}, observed), machine, offers, UNPRICED)
    (module,) = made.levels[0].modules
    assert module.ballooning == pytest.approx(expected)
    assert {one.worker: one.latency_ms for one in module.profiles} == pytest.approx({"cpu": 25.0, "openvino": 5.5})


def test_item_time_is_a_part_of_the_nearest_measured_batch() -> None:
    """Beyond the largest batch as there. Of as many runs at once, else of fewer."""
    rows = _measured((1, 1, 10.0), (4, 1, 20.0), (1, 2, 14.0), (4, 2, 90.0))
    assert [_item_ms(rows, batch, 1) for batch in (1, 2, 4, 8)] == [10.0, 10.0, 5.0, 5.0]
    assert [_item_ms(rows, 1, at_once) for at_once in (2, 3)] == [14.0, 14.0]


@pytest.mark.parametrize(
    ("int8_ms", "loaded", "chosen", "planned_ms"),
    [
        (10.0, "", "fp32", 10.0),  # as quick: by name
        (10.0, "int8", "int8", 10.0),
        (10.9, "int8", "int8", 10.9),  # 10 × 1.1 = 11 with the load
        (11.1, "int8", "fp32", 11.0),
        (9.2, "fp32", "fp32", 10.0),  # 9.2 × 1.1 = 10.12
        (9.0, "fp32", "int8", 9.9),
        (10.9, "fp32 int8", "fp32", 10.0),
    ],
)
def test_variant_that_is_loaded_comes_before_one_that_is_no_tenth_quicker(
    int8_ms: float, loaded: str, chosen: str, planned_ms: float
) -> None:
    """Of two that are as good for the stage, fp32 with 10 ms (SC-22). What has to be loaded counts a tenth more."""
    box = EngineBench()
    box.add({"fp32": Cost(run_ms=10), "int8": Cost(run_ms=int8_ms)}, name="read")
    stage = Ask(name="read", application_id="t/read", accuracy_min=50.0)
    entry = box.catalogue.entry("t/read")
    builds = {box.build(name, "t/read") for name in loaded.split()}
    offers = {"read": offers_of(stage, entry, lambda one: ("cpu",), builds.__contains__)}
    graph = Graph.of((stage,), {"t/read": TaskKind.TEXT_RECOGNITION})
    subject = Subject(Pipeline("t/p", "t", "p", 500.0, (stage,)), graph, {"t/read": entry}, Observed(0.0, 0.0, 0, {}))
    machine = Machine.made([Group("cpu", ("cpu",), 2, has_host=True)], UNPRICED, 2)
    made = asked(subject, machine, offers, UNPRICED)
    assert made.variants[0] == {("read", "cpu", 1, 1): chosen}
    assert [one.latency_ms for one in made.levels[0].modules[0].profiles] == pytest.approx([planned_ms])
