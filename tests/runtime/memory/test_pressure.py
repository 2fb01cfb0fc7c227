"""The budget follows what the machine can spare."""

from appliance.policies.forecast.memory import Trend
from appliance.runtime.memory.pressure import MemoryPressure
from tests.fakes.clock import run_virtual
from tests.fakes.memory import MemoryBench
from tests.fakes.processor import Cost

MIB = 2**20


def test_budget_shrinks_at_once_and_grows_back_when_all_is_calm() -> None:
    """Others take memory: a build leaves before the system runs out; when they give it back, the box waits, then
    grows to what it had.
    """

    async def story() -> None:
        bench = MemoryBench(
            {"a": Cost(400 * MIB, 400 * MIB), "b": Cost(400 * MIB, 400 * MIB)}, 1000 * MIB, watched=False
        )
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

    run_virtual(story)
