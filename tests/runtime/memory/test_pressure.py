"""The budget follows what the machine can spare."""

from appliance.lab.plan import plan_one
from appliance.policies.forecast.memory import Trend
from appliance.runtime.memory.pressure import MemoryPressure
from tests.fakes.clock import story
from tests.fakes.memory import MemoryBench
from tests.fakes.processor import Cost

MIB = 2**20


@story
async def test_budget_shrinks_at_once_and_grows_back_when_memory_is_calm() -> None:
    """Others take memory: a build leaves before the system runs out; when they give it back, the box waits, then grows
    to what it had.
    """
    bench = MemoryBench({"a": Cost(400 * MIB, 400 * MIB), "b": Cost(400 * MIB, 400 * MIB)}, 1000 * MIB, watched=False)
    machine = {"others": 0}
    pressure = MemoryPressure(
        clock=bench.clock,
        memory=bench.memory,
        forecaster=Trend(),
        available_bytes=lambda: 2000 * MIB - machine["others"] - bench.memory.used_bytes,
        events=bench.events,
        decisions=bench.decisions,
        budget_bytes=1000 * MIB,
        reserve_bytes=100 * MIB,
    )
    await bench.use("a")
    await bench.use("b")
    pressure.step()
    assert bench.memory.budget_bytes == 1000 * MIB, "its own loads are no reason to shrink"
    machine["others"] = 1300 * MIB
    await bench.clock.sleep_until_ns(bench.clock.now_ns() + 10**9)
    pressure.step()
    await bench.clock.sleep_until_ns(bench.clock.now_ns() + 10**9)
    assert bench.memory.budget_bytes <= 600 * MIB
    assert bench.memory.used_bytes <= bench.memory.budget_bytes
    machine["others"] = 0
    budgets = []
    for _ in range(30):
        await bench.clock.sleep_until_ns(bench.clock.now_ns() + 10**9)
        pressure.step()
        budgets.append(bench.memory.budget_bytes)
    assert budgets[0] <= 600 * MIB, "one calm sample is not calm"
    assert budgets[-1] == 1000 * MIB


class Stalling:
    """A box of 1600 MiB, which is what it uses, on a machine that seems to have plenty; `is_scarce` is believed."""

    def __init__(self) -> None:
        costs = {name: Cost(400 * MIB, 400 * MIB) for name in "abcd"}
        self.bench = MemoryBench(costs, 1600 * MIB, watched=False)
        self.is_scarce = True
        self.pressure = MemoryPressure(
            clock=self.bench.clock,
            memory=self.bench.memory,
            forecaster=Trend(),
            available_bytes=lambda: 8000 * MIB - self.bench.memory.used_bytes,
            events=self.bench.events,
            decisions=self.bench.decisions,
            budget_bytes=1600 * MIB,
            reserve_bytes=100 * MIB,
            is_scarce=lambda: self.is_scarce,
        )

    async def use_all(self) -> None:
        for name in "abcd":
            await self.bench.use(name)

    async def pass_s(self, seconds: int) -> None:
        """With the samples of each second, and no request."""
        for _ in range(seconds):
            self.pressure.step()
            await self.bench.clock.sleep_until_ns(self.bench.clock.now_ns() + 10**9)


@story
async def test_budget_shrinks_at_each_stall_without_any_request() -> None:
    """An eighth of what is used at a time, and so at least a build; the reason is kept."""
    box = Stalling()
    await box.use_all()
    used = [box.bench.memory.used_bytes // MIB]
    for _ in range(2):
        box.pressure.stalled()
        await box.pass_s(2)
        used.append(box.bench.memory.used_bytes // MIB)
    assert used == [1600, 1200, 800]
    decisions = [told for kind, told in box.bench.decisions.told if kind == "budget"]
    for told in decisions:
        assert {k: v for k, v in plan_one(told["problem"]).items() if k != "elapsed_ms"} == told["answer"]
    answers = [str(told["answer"]) for told in decisions]
    assert len(answers) == 2
    assert all("processes stand for want of memory" in answer for answer in answers)


@story
async def test_budget_keeps_a_quarter_however_many_stalls_there_are() -> None:
    """A box goes on with small networks, as long as there is memory to be had."""
    box = Stalling()
    await box.use_all()
    for _ in range(30):
        box.pressure.stalled()
        await box.pass_s(2)
    assert box.bench.memory.budget_bytes == 400 * MIB
    assert box.bench.memory.used_bytes == 400 * MIB


@story
async def test_budget_grows_back_when_there_was_no_stall_for_a_while() -> None:
    box = Stalling()
    await box.use_all()
    box.pressure.stalled()
    await box.pass_s(20)
    assert box.bench.memory.budget_bytes < 1600 * MIB
    await box.pass_s(20)
    assert box.bench.memory.budget_bytes == 1600 * MIB


@story
async def test_budget_stays_where_stalls_are_of_other_processes() -> None:
    """Other processes stall within limits of their own."""
    box = Stalling()
    await box.use_all()
    box.is_scarce = False
    box.pressure.stalled()
    await box.pass_s(10)
    assert box.bench.memory.used_bytes == 1600 * MIB
