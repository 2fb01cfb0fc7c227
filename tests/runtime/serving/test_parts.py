"""A network in parts over several processors answers exactly what it does whole."""

import asyncio
import itertools
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from appliance.clock import SystemClock
from appliance.domain.errors import DeadlineExceeded
from appliance.domain.hardware import PreparedForm
from appliance.domain.names import part_build_id
from appliance.domain.parts import BatchTime, Cut, Part, PartProfile
from appliance.domain.request import Request, Tensors
from appliance.modelstore.importing.profiling import DIFFERENCE_MAX_OTHERS
from appliance.modelstore.orders import CutMade
from appliance.modelstore.stages.running import Runner
from appliance.runtime.processors.cpu.session import OnnxProcessor
from appliance.runtime.processors.measuring.same import difference
from appliance.runtime.served_parts import partition_of
from appliance.runtime.serving.parts import Commitment, LoadedPart, PartsRun, Progress, Rows
from tests import toys
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.harness.reach import reachable
from tests.modelstore.stages.dissected import cut_by, dissected, types_in
from tests.runtime.processors.refusing import RefusingProcessor
from tests.runtime.serving.parts_bench import CUT, bench_of, variant_of

pytestmark = pytest.mark.gate("a real network is cut and run")

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


class Box:
    """Processors by name, with every part loaded that they take. Each has one run at a time: of all parts that follow
    one another there.
    """

    def __init__(self, made: CutMade) -> None:
        self.processors: dict[str, OnnxProcessor | RefusingProcessor] = {
            "npu": RefusingProcessor("npu", REFUSED),
            "cpu": OnnxProcessor("cpu", 1, 1, 1),
        }
        self.made, self.cut = made, cut_of(made)
        self.clock = SystemClock()
        self.handles: dict[str, dict[int, Any]] = {}
        self.is_free = {name: asyncio.Lock() for name in self.processors}
        self.trace: list[str] = []
        self.ran: list[int] = []

    async def load(self) -> None:
        for name, processor in self.processors.items():
            self.handles[name] = {
                number: await processor.load(PreparedForm(f"u{number}", unit.path, unit.size_bytes, False, kind=name))
                for number, unit in enumerate(self.made.units)
                if name in unit.kinds
            }

    async def commit(self, progress: Progress) -> Commitment:
        left = [number for number in range(len(self.cut.parts)) if number not in progress.done]
        name = "npu" if left[0] in self.handles["npu"] else "cpu"
        await self.is_free[name].acquire()
        self.trace.append(name)
        parts = itertools.takewhile(lambda number: (number in self.handles["npu"]) is (name == "npu"), left)
        loaded = {number: LoadedPart(name, self.handles[name][number]) for number in parts}
        return Commitment(name, self.processors[name], loaded)

    def ended(self, commitment: Commitment, ran: Mapping[int, int], items: int) -> None:
        self.is_free[commitment.group].release()
        self.ran.extend(ran)

    def run(self, inputs: Tensors) -> PartsRun:
        request = Request("app", "tenant", inputs, self.clock.now_ns())
        return PartsRun(self.clock, self.cut, request, self.made.units[-1].outputs)

    def close(self) -> None:
        for processor in self.processors.values():
            processor.close()


def shuffled(folder: Path) -> tuple[Path, CutMade]:
    """A ShuffleNet, cut for an accelerator that cannot move data about."""
    path = toys.shufflenet(folder / "net.onnx")
    found = dissected(path, folder, INPUT)
    types = types_in(found)
    return path, cut_by(found, [INPUT], lambda one: not REFUSED & {types[name] for name in one.nodes}, ops_min=2)


@pytest.mark.anyio
async def test_parts_answer_what_the_whole_network_does(tmp_path: Path) -> None:
    """On two processors in turn, several requests at once."""
    path, made = shuffled(tmp_path)
    box = Box(made)
    await box.load()
    rng = np.random.default_rng(1)
    inputs = [{"gpu_0/data_0": rng.standard_normal((rows, 3, 224, 224)).astype(np.float32)} for rows in (1, 2, 1, 3)]
    answers = await asyncio.gather(*(box.run(one).run(box) for one in inputs))
    whole = Runner(path)
    for one, answer in zip(inputs, answers, strict=True):
        wanted = whole.run(one)
        assert answer.keys() == wanted.keys()
        for name, array in wanted.items():
            assert difference(array, answer[name]) < DIFFERENCE_MAX_OTHERS
    assert set(box.trace) == {"cpu", "npu"}
    assert sorted(box.ran) == sorted(list(range(len(made.units))) * len(inputs)), "each part once for each request"
    box.close()


@pytest.mark.anyio
async def test_tensors_between_parts_are_freed_once_read(tmp_path: Path) -> None:
    """At the end only the answer is held."""
    _path, made = shuffled(tmp_path)
    box = Box(made)
    await box.load()
    run = box.run(INPUT)
    before = [one for one in reachable(run) if isinstance(one, np.ndarray)]
    answer = await run.run(box)
    held = {id(one) for one in reachable(run) if isinstance(one, np.ndarray)} - set(map(id, before))
    assert held == set(map(id, answer.values()))
    box.close()


class Alone:
    """Port `Dispatcher`: the first kind has all of it, so many parts at a time."""

    def __init__(self, bench: EngineBench, handles: Sequence[Any], at_once: int, *others: Rows) -> None:
        """`others`: rows that the first commitment brings."""
        self.was_at: list[str | None] = []
        self.ran: list[int] = []
        self._bench, self._handles, self._at_once, self._others = bench, handles, at_once, others

    async def commit(self, progress: Progress) -> Commitment:
        self.was_at.append(progress.at)
        left = [number for number in range(len(CUT.parts)) if number not in progress.done][: self._at_once]
        parts = {number: LoadedPart("cpu", self._handles[number]) for number in left}
        others, self._others = self._others, ()
        return Commitment("fake", self._bench.processor, parts, others)

    def ended(self, commitment: Commitment, ran: Mapping[int, int], items: int) -> None:
        self.ran.extend(ran)


async def loaded(bench: EngineBench) -> list[Any]:
    """Every part of the network in memory."""
    builds = [part_build_id(variant_of(bench).content_sha256, number, "cpu") for number in range(len(CUT.parts))]
    return [await bench.processor.load(PreparedForm(build, "", 4, False, kind="cpu")) for build in builds]


@story
async def test_run_that_ends_late_gives_the_rows_of_other_requests_back() -> None:
    """They run by themselves then: no request waits for a run that has ended."""
    bench = bench_of(cut=False)
    handles = await loaded(bench)
    request = bench.request(5, within_ms=4.5)
    rows = Rows(request.inputs, 1, asyncio.get_running_loop().create_future(), request.drop_ns)
    with pytest.raises(DeadlineExceeded):
        await PartsRun(bench.clock, CUT, request, ("y",)).run(Alone(bench, handles, 1, rows))
    assert rows.answer.done()
    assert rows.answer.result().outputs is None


@pytest.mark.parametrize(("at_once", "was_at"), [(1, [None, "fake"]), (3, [None])])
@story
async def test_deadline_between_parts_ends_the_request(at_once: int, was_at: list[str | None]) -> None:
    """It passes while the second part runs, which ends after 5 ms: nothing more begins. A request that is answered
    whenever it is done goes on.
    """
    bench = bench_of(cut=False)
    alone = Alone(bench, await loaded(bench), at_once)
    request = bench.request(5, within_ms=4.5)
    with pytest.raises(DeadlineExceeded) as late:
        await PartsRun(bench.clock, CUT, request, ("y",)).run(alone)
    assert (late.value.waited_ms, alone.ran, alone.was_at) == (5, [0, 1], was_at)
    request.runs_late = True
    assert (await PartsRun(bench.clock, CUT, request, ("y",)).run(alone))["y"].tolist() == [16.0]


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
