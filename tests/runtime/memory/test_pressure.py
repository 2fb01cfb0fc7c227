"""The budget follows what the machine can spare."""

from appliance.lab.plan import plan_one
from appliance.policies.forecast.memory import Trend
from appliance.runtime.memory.pressure import MemoryPressure
from tests.fakes.clock import story
from tests.fakes.memory import MemoryBench
from tests.fakes.processor import Cost

MIB = 2**20


class Machine:
    """A box whose builds take 400 MiB each, and other programs on its machine."""

    def __init__(self, names: str, budget_mib: int, machine_mib: int) -> None:
        self.names, self.budget_mib, self.others_mib = names, budget_mib, 0
        self.bench = MemoryBench({name: Cost(400 * MIB) for name in names}, budget_mib * MIB, watched=False)
        self.is_scarce = True
        """That processes stand for want of memory is believed."""
        self.pressure = MemoryPressure(
            clock=self.bench.clock,
            memory=self.bench.memory,
            forecaster=Trend(),
            available_bytes=lambda: (machine_mib - self.others_mib) * MIB - self.bench.memory.used_bytes,
            events=self.bench.events,
            decisions=self.bench.decisions,
            budget_bytes=budget_mib * MIB,
            reserve_bytes=100 * MIB,
            is_scarce=lambda: self.is_scarce,
        )

    async def use_all(self) -> None:
        for name in self.names:
            await self.bench.use(name)

    async def pass_s(self, seconds: int) -> None:
        """With the samples of each second, and no request."""
        for _ in range(seconds):
            self.pressure.step()
            await self.bench.pause(1000)

    def shares(self) -> tuple[int, int]:
        """The budget and what is used of it, in MiB."""
        return self.bench.memory.budget_bytes // MIB, self.bench.memory.used_bytes // MIB


@story
async def test_budget_shrinks_at_once_and_grows_back_when_memory_is_calm() -> None:
    """Others take memory: a build leaves before the system runs out; when they give it back, the box waits, then grows
    to what it had.
    """
    box = Machine("ab", 1000, 2000)
    await box.use_all()
    await box.pass_s(1)
    assert box.shares() == (1000, 800), "its own loads are no reason to shrink"
    box.others_mib = 1300
    await box.pass_s(1)
    assert max(box.shares()) <= 600
    box.others_mib = 0
    await box.pass_s(1)
    assert box.shares()[0] <= 600, "one calm sample is not calm"
    await box.pass_s(29)
    assert box.shares()[0] == 1000


def stalling() -> Machine:
    """It uses all of its budget on a machine that seems to have plenty."""
    return Machine("abcd", 1600, 8000)


@story
async def test_budget_shrinks_at_each_stall_without_any_request() -> None:
    """An eighth of what is used at a time, and so at least a build; the reason is kept. However many stalls there are a
    quarter of the budget stays: the box goes on with small networks.
    """
    box = stalling()
    await box.use_all()
    used = [box.shares()[1]]
    for _ in range(2):
        box.pressure.stalled()
        await box.pass_s(2)
        used.append(box.shares()[1])
    assert used == [1600, 1200, 800]
    decisions = [told for kind, told in box.bench.decisions.told if kind == "budget"]
    for told in decisions:
        assert {k: v for k, v in plan_one(told["problem"]).items() if k != "elapsed_ms"} == told["answer"]
        assert "processes stand for want of memory" in str(told["answer"])
    assert len(decisions) == 2
    for _ in range(28):
        box.pressure.stalled()
        await box.pass_s(2)
    assert box.shares() == (400, 400)


@story
async def test_budget_grows_back_when_there_was_no_stall_for_a_while() -> None:
    box = stalling()
    await box.use_all()
    box.pressure.stalled()
    await box.pass_s(20)
    assert box.shares()[0] < 1600
    await box.pass_s(20)
    assert box.shares()[0] == 1600


@story
async def test_budget_stays_where_stalls_are_of_other_processes() -> None:
    """Other processes stall within limits of their own."""
    box = stalling()
    await box.use_all()
    box.is_scarce = False
    box.pressure.stalled()
    await box.pass_s(10)
    assert box.shares() == (1600, 1600)
