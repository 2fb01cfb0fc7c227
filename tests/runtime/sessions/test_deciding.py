"""Where planners compute."""

import asyncio
import gc
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from appliance.clock import SystemClock, pause_s
from appliance.policies.adaptation.base import AdaptationInput, Client, Network
from appliance.runtime.memory.planner_processes import PlannerProcesses
from appliance.runtime.sessions.deciding import Decisions, DecisionSlow, adaptation_plan, has_begun
from appliance.runtime.sessions.planner_process import PlannerEnded, PlannerProcess
from tests.fakes.memory import MemoryBench
from tests.fakes.planner_processes import killed
from tests.fakes.waiting import until
from tests.harness.signals import freeze

pytestmark = [pytest.mark.usefixtures("processes"), pytest.mark.anyio]

PROBLEM = AdaptationInput(
    networks=(Network("a", 50.0, 9000, {1: 10.0}), Network("b", 60.0, 20000, {1: 20.0})),
    workers=2,
    clients=(Client("one", 10, 100, 1e7), Client("two", 10, 100, 1e7)),
)


@asynccontextmanager
async def decisions(
    *, spent_ns: Callable[[], int] | None = None, process: PlannerProcess | None = None, **more: Any
) -> AsyncIterator[Decisions]:
    """Where planners compute; a process may take as long as it does on the slowest machine."""
    more = {"limit_s": 240.0, "begin_s": 240.0, **more}
    if spent_ns is not None:
        more["spent_ns"] = spent_ns
    if process is not None:
        more["process_for"] = lambda family: process
    deciding = Decisions(SystemClock(), "exchange", "earliest-due", **more)
    try:
        yield deciding
    finally:
        await deciding.close()


async def test_long_decision_is_made_in_planner_process() -> None:
    """The first decision shows how long they take; the answer is the same."""
    async with decisions(in_place_ms_max=1e-6) as deciding:
        here = await deciding.adapt(PROBLEM)
        assert deciding.elsewhere == 0
        assert await deciding.adapt(PROBLEM) == here
        assert (deciding.elsewhere, deciding.count) == (1, 2)


async def test_decision_for_many_sessions_is_never_made_in_place() -> None:
    """Not even the first time: a decision for many that leaves a session out may take half a second. The process begins
    before it is needed.
    """
    process = PlannerProcess()
    async with decisions(in_place_clients_max=2, process=process) as deciding:
        await deciding.adapt(PROBLEM)
        assert deciding.elsewhere == 0
        await until(lambda: process.is_ready)
        await deciding.adapt(replace(PROBLEM, clients=(*PROBLEM.clients, Client("three", 10, 100, 1e7))))
        assert deciding.elsewhere == 1


async def test_decision_goes_to_process_after_single_long_decision_of_size() -> None:
    """Most decisions of a size go on with the plan before, which takes nothing: the median says
    nothing of the others.
    """
    spent_ns = iter(ms * 1_000_000 for ms in (0, 1, 0, 90, 0, 1)).__next__
    async with decisions(spent_ns=spent_ns) as deciding:
        for elsewhere in (0, 0, 1, 2):
            await deciding.adapt(PROBLEM)
            assert deciding.elsewhere == elsewhere


class Counted:
    """Port `Counting` that remembers what it is told, and whether the process was there."""

    is_busy: Callable[[], bool]
    end_now: Callable[[], None]

    def __init__(self, *, has_room: bool = True) -> None:
        self.told: list[str] = []
        self.has_room = has_room

    @asynccontextmanager
    async def beginning(self) -> AsyncIterator[None]:
        if not self.has_room:
            self.told.append("is refused")
            raise OSError("no room")
        self.told.append("begins")
        yield
        self.told.append("is there")

    def ended(self) -> None:
        self.told.append("has ended")


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
async def process(counted: Counted, request: pytest.FixtureRequest) -> AsyncIterator[PlannerProcess]:
    """A parameter says after how many seconds it ends when it is idle."""
    made = PlannerProcess(0, counted, **({"idle_s": request.param} if hasattr(request, "param") else {}))
    yield made
    await made.close()


async def test_memory_account_is_told_of_planner_process_begin_and_end(
    process: PlannerProcess, counted: Counted
) -> None:
    """Before a process begins, once it is there, and when it has ended, by itself or not."""
    await process.call(has_begun)
    assert counted.told == ["begins", "is there"]
    await process.call(has_begun)
    await killed(process)
    await process.call(has_begun)
    assert counted.told[2:] == ["has ended", "begins", "is there"]
    await process.close()
    assert counted.told[5:] == ["has ended"]


async def test_planner_process_ends_at_once_when_memory_is_needed(process: PlannerProcess, counted: Counted) -> None:
    """Also while it computes: a decision that waits for it fails; the next call begins another process."""
    await process.call(has_begun)
    asking = asyncio.create_task(process.call(pause_s, 600))
    await until(counted.is_busy, every_s=0)
    counted.end_now()
    with pytest.raises(PlannerEnded):
        await asking
    assert not counted.is_busy()
    assert counted.told == ["begins", "is there"], "memory knows that it has ended"
    await process.call(has_begun)
    assert counted.told == ["begins", "is there"] * 2


async def test_planner_process_ends_when_memory_is_needed_as_process_begins() -> None:
    """The budget shrinks meanwhile: no process serves on that is not counted."""
    bench = MemoryBench({}, 200)
    process = PlannerProcess(0, PlannerProcesses(bench.clock, bench.memory).process("adaptation", 30))
    try:
        asking = asyncio.create_task(process.call(os.getpid))
        await until(lambda: bench.memory.free_bytes == 170, every_s=0)
        assert bench.memory.overheads() == {}, "it is yet to begin"
        bench.memory.resize(20)
        with pytest.raises(PlannerEnded):
            await asking
        assert bench.memory.overheads() == {}
    finally:
        await process.close()


@pytest.mark.parametrize("process", [0.01], indirect=True)
async def test_planner_process_ends_when_idle(process: PlannerProcess, counted: Counted) -> None:
    """The next call begins another one."""
    await process.call(has_begun)
    await until(lambda: "has ended" in counted.told)
    await process.call(has_begun)
    assert counted.told[3:5] == ["begins", "is there"]


@pytest.mark.parametrize("turns", range(6))
async def test_planner_closed_while_it_clears_up_dead_process_leaves_nothing_open(
    process: PlannerProcess, counted: Counted, turns: int
) -> None:
    """However far it has come: no socket (the garbage collector would tell of it) and nothing that is counted."""
    await killed(process)
    process.warm_up(has_begun)
    for _ in range(turns):
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
    await process.close()
    gc.collect()
    assert counted.told.count("begins") == counted.told.count("has ended")


async def test_decision_without_memory_for_planner_is_made_in_thread() -> None:
    """The answer is the same, and the event loop has its turns meanwhile."""
    counted, threads = Counted(has_room=False), set[int]()

    def spent_ns() -> int:
        threads.add(threading.get_ident())
        return 0

    async with decisions(in_place_clients_max=1, spent_ns=spent_ns, process=PlannerProcess(0, counted)) as deciding:
        assert await deciding.adapt(PROBLEM) == adaptation_plan("exchange", PROBLEM)
        assert (deciding.elsewhere, set(counted.told)) == (0, {"is refused"})
        assert threads
        assert threading.get_ident() not in threads


async def test_killed_planner_process_is_begun_anew() -> None:
    """The decision is made all the same."""
    process = PlannerProcess()
    async with decisions(in_place_ms_max=1e-6, process=process) as deciding:
        here = await deciding.adapt(PROBLEM)
        await deciding.adapt(PROBLEM)
        await killed(process)
        assert [await deciding.adapt(PROBLEM) for _ in range(2)] == [here] * 2


async def test_stopped_planner_process_is_begun_anew_after_limit(process: PlannerProcess) -> None:
    """The process is ended after the limit, and the decision is made in place, where that does not take very long; else
    there is none.
    """
    timing: dict[str, Any] = {"spent_ns": itertools.count(0, 10_000_000).__next__, "process": process}
    async with (
        decisions(**timing) as patient,
        decisions(**timing, limit_s=0.2) as hasty,
        decisions(**timing, limit_s=0.2, in_place_ms_max=1e-6) as strict,  # all decisions take very long by that
    ):
        here = await patient.adapt(PROBLEM)
        for one in (hasty, strict):
            assert await one.adapt(PROBLEM) == here
        assert not process.is_ready
        assert await patient.adapt(PROBLEM) == here
        await stopped(process)
        assert await hasty.adapt(PROBLEM) == here
        assert not process.is_ready
        assert await patient.adapt(PROBLEM) == here
        assert process.is_ready
        await stopped(process)
        with pytest.raises(DecisionSlow):
            await strict.adapt(PROBLEM)
        assert await patient.adapt(PROBLEM) == here
        assert (patient.elsewhere, hasty.elsewhere, strict.elsewhere) == (3, 1, 1)


async def stopped(process: PlannerProcess) -> None:
    freeze(await process.call(os.getpid))


async def test_decision_is_made_in_place_when_no_process_can_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has no memory for a process."""

    async def refuse() -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("appliance.runtime.sessions.planner_process.PlannerProcess._start", staticmethod(refuse))
    async with decisions(in_place_ms_max=1e-6) as deciding:
        here = await deciding.adapt(PROBLEM)
        assert await deciding.adapt(PROBLEM) == here


async def test_decision_length_counts_processor_time_only() -> None:
    """On a busy machine an answer in place may take any time: an answer of a process would, too."""
    async with decisions(in_place_ms_max=1e-6, spent_ns=lambda: 0) as deciding:
        for _ in range(4):
            await deciding.adapt(PROBLEM)
        assert deciding.elsewhere == 0


def test_first_plan_imports_no_modules() -> None:
    """The plan is made on the event loop, which an import would hold for tens of milliseconds."""
    lines = (
        "import sys",
        "from appliance.policies.adaptation import ADAPTATION_POLICIES",
        "from appliance.policies.offload import OFFLOAD_POLICIES",
        "from tests.instances.adaptation import drawn, overloaded",
        "from tests.instances.offload import random_scenes",
        "problems = [drawn(0, 2, 4), overloaded(0, 3, 6)]",
        "scene = random_scenes.drawn(1)",
        "before = set(sys.modules)",
        "for problem in problems:",
        "    ADAPTATION_POLICIES['exchange']().plan(problem)",
        "OFFLOAD_POLICIES['earliest-due']().plan(scene)",
        "print(sorted(set(sys.modules) - before))",
    )
    found = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
