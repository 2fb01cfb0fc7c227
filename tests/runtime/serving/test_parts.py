"""A network in parts over several processors answers exactly what it does whole, whatever happens between its parts."""

import asyncio
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from appliance.clock import NS_PER_MS, Clock, SystemClock
from appliance.domain.errors import DeadlineExceeded, LoadFailed, ProcessorLost, RunFailed
from appliance.domain.hardware import PreparedForm, ProcessorDescription
from appliance.domain.parts import BatchTime, Cut, Part, PartProfile
from appliance.domain.request import Request, Tensors
from appliance.modelstore.importing.profiling import DIFFERENCE_MAX_OTHERS
from appliance.modelstore.orders import CutMade
from appliance.modelstore.stages.running import Runner
from appliance.policies.dispatch.base import DispatchInput, Job, Processor
from appliance.policies.dispatch.least_slack import LeastSlack
from appliance.runtime.processors.cpu.session import OnnxProcessor
from appliance.runtime.processors.measuring.same import difference
from appliance.runtime.served_parts import partition_of
from appliance.runtime.serving.parts import Commitment, LoadedPart, PartsRun, Progress
from tests import toys
from tests.fakes.hand_clock import HandClock
from tests.harness.reach import reachable
from tests.modelstore.networks import model, write
from tests.modelstore.stages.dissected import cut_by, dissected, types_in
from tests.runtime.processors.refusing import RefusingProcessor

pytestmark = pytest.mark.gate("a whole engine for minutes of virtual time")

REFUSED = frozenset({"Transpose", "Reshape", "Softmax"})
"""Of the accelerator: a ShuffleNet mixes its channels so, sixteen times."""
INPUT = {"gpu_0/data_0": np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)}


def cut_of(made: CutMade) -> Cut:
    """As an import would record it, with times that make processors change often."""
    return Cut(
        {},
        tuple(
            Part(
                one.operators,
                one.op_types,
                one.inputs,
                one.outputs,
                one.size_bytes,
                one.flops,
                one.tensor_bytes,
                tuple(
                    PartProfile(kind, (BatchTime(1, 5.0 if kind == "cpu" else 1.0),), True, 1000, 1000)
                    for kind in one.kinds
                ),
            )
            for one in made.units
        ),
    )


@dataclass
class Box:
    """Processors by name, with every part loaded that they take; decides by Band's policy, one run a processor."""

    processors: Mapping[str, OnnxProcessor | RefusingProcessor]
    made: CutMade
    clock: Clock = field(default_factory=SystemClock)
    handles: dict[str, dict[int, Any]] = field(default_factory=dict)
    trace: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    busy: dict[str, int] = field(default_factory=dict)
    most_at_once: int = 0
    freed: asyncio.Event = field(default_factory=asyncio.Event)
    ended_ns: list[Mapping[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cut = cut_of(self.made)
        self.kinds = {name: one.describe().kind for name, one in self.processors.items()}

    def _takes_ms(self, name: str) -> dict[int, float]:
        profiles = {number: self.cut.profile(number, self.kinds[name]) for number in range(len(self.cut.parts))}
        return {number: profile.p50_ms() for number, profile in profiles.items() if profile is not None}

    async def load(self) -> None:
        for name, processor in self.processors.items():
            kind = processor.describe().kind
            self.handles[name] = {
                number: await processor.load(PreparedForm(f"u{number}", unit.path, unit.size_bytes, False, kind=kind))
                for number, unit in enumerate(self.made.units)
                if kind in unit.kinds
            }

    async def commit(self, progress: Progress) -> Commitment:
        while True:
            there = [name for name in self.processors if (name, self.kinds[name]) not in progress.lost]
            free = [Processor(name) for name in there if not self.busy.get(name)]
            if not there:
                raise ProcessorLost(processor="all", retry_after_s=30.0)
            left = [number for number in range(len(self.cut.parts)) if number not in progress.done]
            partition = partition_of(self.cut, {name: self._takes_ms(name) for name in there}, left)
            job = Job("job", partition, 0.0, at=progress.at if progress.at in there else None)
            plan = LeastSlack().plan(DispatchInput(0.0, tuple(free), (job,), 0.0))
            if plan.decision is not None:
                name = plan.decision.processor
                self.busy[name] = self.busy.get(name, 0) + 1
                self.most_at_once = max(self.most_at_once, *self.busy.values())
                parts = tuple(int(op) for op in plan.decision.ops)
                self.trace.append((name, parts))
                loaded = {number: LoadedPart(self.kinds[name], self.handles[name][number]) for number in parts}
                return Commitment(name, self.processors[name], loaded)
            if not self.busy:
                raise ProcessorLost(processor="all", retry_after_s=30.0)
            self.freed.clear()
            await self.freed.wait()

    def ended(self, commitment: Commitment, ran: Mapping[int, int], items: int) -> None:
        self.busy[commitment.group] -= 1
        self.ended_ns.append(dict(ran))
        self.freed.set()

    def request(self, inputs: Tensors = INPUT, **more: Any) -> Request:
        return Request("app", "tenant", inputs, self.clock.now_ns(), **more)

    def run(self, request: Request) -> PartsRun:
        return PartsRun(self.clock, self.cut, request, request.outputs or self._outputs())

    def _outputs(self) -> Sequence[str]:
        return self.made.units[-1].outputs

    def close(self) -> None:
        for processor in self.processors.values():
            processor.close()


def shuffled(folder: Path) -> tuple[Path, CutMade]:
    """A ShuffleNet, cut for an accelerator that cannot move data about."""
    path = toys.shufflenet(folder / "net.onnx")
    found = dissected(path, folder, INPUT)
    types = types_in(found)
    return path, cut_by(found, [INPUT], lambda one: not REFUSED & {types[name] for name in one.nodes}, ops_min=2)


def two(made: CutMade, **more: Any) -> Box:
    cpu = OnnxProcessor("cpu", 1, 1, 1)
    return Box({"cpu": cpu, "npu": RefusingProcessor("npu", REFUSED, **more)}, made)


@pytest.mark.anyio
async def test_parts_answer_what_the_whole_network_does(tmp_path: Path) -> None:
    """On two processors in turn, several at once; a processor has one run at a time."""
    path, made = shuffled(tmp_path)
    box = two(made)
    await box.load()
    rng = np.random.default_rng(1)
    inputs = [{"gpu_0/data_0": rng.standard_normal((rows, 3, 224, 224)).astype(np.float32)} for rows in (1, 2, 1, 3)]
    answers = await asyncio.gather(*(box.run(box.request(one)).run(box) for one in inputs))
    whole = Runner(path)
    for one, answer in zip(inputs, answers, strict=True):
        wanted = whole.run(one)
        assert answer.keys() == wanted.keys()
        for name, array in wanted.items():
            assert difference(array, answer[name]) < DIFFERENCE_MAX_OTHERS
    assert {name for name, _parts in box.trace} == {"cpu", "npu"}
    assert box.most_at_once == 1
    assert not any(box.busy.values())
    ran = [number for one in box.ended_ns for number in one]
    assert sorted(ran) == sorted(list(range(len(made.units))) * len(inputs)), "each part once for each request"
    box.close()


@pytest.mark.anyio
async def test_accelerator_loads_its_parts_but_not_the_whole_network(tmp_path: Path) -> None:
    path, made = shuffled(tmp_path)
    npu = RefusingProcessor("npu", REFUSED)
    with pytest.raises(LoadFailed, match="does not take"):
        await npu.load(PreparedForm("net", str(path), 1, False, kind="npu"))
    for number, unit in enumerate(made.units):
        if "npu" in unit.kinds:
            await npu.load(PreparedForm(f"u{number}", unit.path, unit.size_bytes, False, kind="npu"))
    npu.close()


@pytest.mark.anyio
@pytest.mark.parametrize("after", [0, 1, 3])
async def test_processor_lost_between_parts_leaves_the_rest_to_another(tmp_path: Path, after: int) -> None:
    """Parts that have run are not run again; the answer is the same."""
    path, made = shuffled(tmp_path)
    box = two(made, runs_max=after)
    await box.load()
    run = box.run(box.request())
    answer = await run.run(box)
    wanted = Runner(path).run(INPUT)
    for name, array in wanted.items():
        assert difference(array, answer[name]) < DIFFERENCE_MAX_OTHERS
    assert run.progress.lost == {("npu", "npu")}
    assert run.progress.at == "cpu"
    assert sorted(number for one in box.ended_ns for number in one) == list(range(len(made.units)))
    box.close()


@pytest.mark.anyio
async def test_request_in_parts_that_no_processor_can_serve_is_told_to_retry(tmp_path: Path) -> None:
    _path, made = shuffled(tmp_path)
    box = two(made, runs_max=1)
    box.processors["cpu"].close()
    box.processors = {"npu": box.processors["npu"]}
    await box.load()
    with pytest.raises(ProcessorLost) as refused:
        await box.run(box.request()).run(box)
    assert refused.value.retry_after_s == 30.0
    assert not any(box.busy.values())
    box.close()


@pytest.mark.anyio
async def test_deadline_between_parts_ends_the_request(tmp_path: Path) -> None:
    """Nothing more begins; a request that is answered whenever it is done goes on."""
    _path, made = shuffled(tmp_path)
    clock = HandClock()
    npu = RefusingProcessor("npu", REFUSED, on_run=lambda: clock.pass_s(0.005))
    box = Box({"cpu": RefusingProcessor("cpu", frozenset(), kind="cpu"), "npu": npu}, made, clock)
    await box.load()
    deadline_ns = clock.now_ns() + 12 * NS_PER_MS
    with pytest.raises(DeadlineExceeded) as late:
        await box.run(box.request(deadline_ns=deadline_ns)).run(box)
    assert late.value.waited_ms == 15
    by_npu = [number for one in box.ended_ns for number in one if "npu" in made.units[number].kinds]
    assert len(by_npu) == 3, "the third run was under way at the deadline"
    assert not any(box.busy.values())
    assert await box.run(box.request(deadline_ns=deadline_ns, runs_late=True)).run(box)
    box.close()


@pytest.mark.anyio
async def test_cancelled_request_in_parts_frees_its_processor_after_the_run(tmp_path: Path) -> None:
    """The caller waits no longer at once; the slot is free only when the run that was under way has ended."""
    _path, made = shuffled(tmp_path)
    gate = threading.Event()
    box = two(made, on_run=gate.wait)
    await box.load()
    npu = box.processors["npu"]
    assert isinstance(npu, RefusingProcessor)
    task = asyncio.create_task(box.run(box.request()).run(box))
    await npu.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert box.busy["npu"] == 1
    assert npu.running == 1
    box.freed.clear()
    gate.set()
    await box.freed.wait()
    assert not box.busy["npu"]
    assert npu.running == 0
    assert len(box.trace) < len(made.units)
    box.close()


@pytest.mark.anyio
async def test_failing_part_fails_its_request_and_frees_its_processor(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Softmax", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["y"]),
    ]
    made_of = model(nodes, {"x": ("n", "m")}, {"y": ("n", 2)}, {"w": np.ones((3, 2), np.float32)})
    feeds = {"x": np.ones((1, 3), np.float32)}
    found = dissected(write(made_of, tmp_path), tmp_path, feeds)
    types = types_in(found)
    box = two(cut_by(found, [feeds], lambda one: types[one.nodes[-1]] != "Softmax", ops_min=1))
    await box.load()
    with pytest.raises(RunFailed):
        await box.run(box.request({"x": np.ones((1, 5), np.float32)})).run(box)
    assert not any(box.busy.values())
    assert await box.run(box.request(feeds)).run(box)
    box.close()


@pytest.mark.anyio
async def test_tensors_between_parts_are_freed_once_read(tmp_path: Path) -> None:
    """At the end only the answer is held."""
    _path, made = shuffled(tmp_path)
    box = two(made)
    await box.load()
    run = box.run(box.request())
    before = [one for one in reachable(run) if isinstance(one, np.ndarray)]
    answer = await run.run(box)
    held = {id(one) for one in reachable(run) if isinstance(one, np.ndarray)} - set(map(id, before))
    assert held == set(map(id, answer.values()))
    box.close()


def test_cut_becomes_a_partition_for_the_dispatch_policies(tmp_path: Path) -> None:
    """Parts keep their order and their processors; latencies add up over a subgraph, by processor. Parts that have run
    are not in it.
    """
    _path, made = shuffled(tmp_path)
    cut = cut_of(made)
    count = len(made.units)
    takes_ms = {
        "big": {number: random.Random(number).uniform(1, 9) for number in range(count)},
        "npu": {number: 0.5 for number, part in enumerate(cut.parts) if "npu" in part.kinds},
    }
    for left in (range(count), range(3, count)):
        partition = partition_of(cut, takes_ms, left)
        assert [int(op) for unit in partition.units for op in unit] == list(left)
        for subgraph in partition.subgraphs:
            numbers = [int(op) for op in subgraph.ops]
            assert all(number in takes_ms[name] for name in subgraph.latency_ms for number in numbers)
            assert subgraph.latency_ms["big"] == pytest.approx(sum(takes_ms["big"][number] for number in numbers))


def test_accelerator_describes_its_name_kind_and_workers() -> None:
    npu = RefusingProcessor("npu", REFUSED)
    assert npu.describe() == ProcessorDescription("npu", "npu", 1, 1, "npu", "fake accelerator")
    npu.close()
