"""A memory manager over a fake processor, with the budget watched at every change."""

from collections.abc import Awaitable, Callable, Mapping

from appliance.clock import NS_PER_MS, LoopClock
from appliance.policies.forecast.renewal import Renewal
from appliance.policies.residency import DEFAULT, EVICTION_POLICIES
from appliance.policies.selection.most_accurate import MostAccurate
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.loader import Loader
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.memory.room import Arbiter, Process
from appliance.runtime.ports import DecisionSink
from appliance.runtime.residency.arbiter import EvictionArbiter
from appliance.runtime.residency.demand import Expectations
from appliance.runtime.residency.groups import VariantGroups
from appliance.runtime.residency.shares import Shares
from tests.fakes.clock import ms
from tests.fakes.processor import Cost, FakeProcessor
from tests.fakes.sinks import Decisions, Events
from tests.fakes.source import FakeSource


def without_applications(budget: int, decisions: DecisionSink) -> Arbiter:
    """The box's arbiter where no build is anybody's variant: the least recently used leave."""
    catalogue = Catalogue(MostAccurate())
    groups = VariantGroups(catalogue)
    expectations = Expectations(lambda name: Renewal(), alpha=1.0, delta_ns=1, history_ns=1)
    shares = Shares(catalogue, groups, budget)
    return EvictionArbiter(groups, expectations, shares, EVICTION_POLICIES[DEFAULT](), decisions, DEFAULT)


class MemoryBench:
    """What a test of the memory manager holds in its hands. To be made inside a running loop."""

    def __init__(
        self,
        costs: Mapping[str, Cost],
        budget: int,
        *,
        arbiter: Arbiter | None = None,
        wait_ms_max: float = 1000,
        watched: bool = True,
        asleep_share: float = 0.25,
        process_of: Callable[[str], Process | None] = lambda build_id: None,
        ahead_max: int | None = None,
    ) -> None:
        self.clock = LoopClock()
        self.budget = budget
        self.events = Events(lambda event: self.watch() if watched else None)
        self.decisions = Decisions()
        self.source = FakeSource()
        self.processor = FakeProcessor(self.clock, costs, on_memory=lambda used: self.watch() if watched else None)
        self.memory = MemoryManager(
            clock=self.clock,
            loader=Loader(self.source, self.processor),
            arbiter=arbiter or without_applications(budget, self.decisions),
            budget_bytes=budget,
            wait_ms_max=wait_ms_max,
            events=self.events,
            users_of=lambda build: (f"t/{build}",),
            asleep_share=asleep_share,
            asleep_of=lambda build: costs[build].asleep_bytes if build in costs else None,
            process_of=process_of,
            ahead_max=ahead_max,
        )

    def elapsed_ms(self, start_ns: int) -> float:
        """Since a moment on the clock."""
        return (self.clock.now_ns() - start_ns) / 1e6

    def watch(self) -> None:
        """Neither the ledger nor the device may ever be above the budget."""
        assert self.memory.used_bytes <= self.budget, "the ledger is over the budget"
        assert sum(self.processor.memory.values()) <= self.budget, "the device is over the budget"

    async def pin(self, build_id: str, deadline_ms: float | None = None) -> LoadedBuild:
        """Pin a build with its true cost; the deadline is relative to now."""
        cost = self.processor.costs[build_id]
        deadline_ns = None if deadline_ms is None else self.clock.now_ns() + int(deadline_ms * 1e6)
        return await self.memory.pin(build_id, cost.resident_bytes, cost.peak_bytes, deadline_ns)

    async def use(self, build_id: str, hold_ms: float = 0, deadline_ms: float | None = None) -> None:
        """Pin a build, hold it, release it."""
        residency = await self.pin(build_id, deadline_ms)
        try:
            assert not residency.handle.is_asleep
            assert residency.handle.is_live
            await self.pause(hold_ms)
            assert not residency.handle.is_asleep, "a pinned build went to sleep"
            assert residency.handle.is_live, "a pinned build was unloaded"
        finally:
            self.memory.unpin(residency)

    async def took_ms(self, call: Awaitable[object]) -> float:
        """Milliseconds until it has ended."""
        start_ns = self.clock.now_ns()
        await call
        return ms(self.clock.now_ns() - start_ns)

    async def pause(self, pause_ms: float) -> None:
        """Let time pass."""
        await self.clock.sleep_until_ns(self.clock.now_ns() + int(pause_ms * NS_PER_MS))

    async def put_to_sleep(self, *build_ids: str) -> None:
        """Use builds and let go of them, one after the other, until all of them have left."""
        for build_id in build_ids:
            await self.use(build_id)
            self.memory.release(build_id)
            await self.pause(1000)

    async def unloaded(self, build_id: str) -> None:
        """Let time pass until a build that leaves has left the device."""
        assert build_id not in self.memory.resident_set(), f"{build_id} does not leave"
        while build_id in self.processor.memory:
            await self.pause(1)

    def states(self) -> dict[str, str]:
        return {build["build"]: build["state"] for build in self.memory.snapshot()["builds"]}

    def resident(self) -> list[str]:
        return sorted(self.memory.resident_set())

    def assert_quiet(self) -> None:
        """Nothing under way: no pins, and the ledger is exactly what the resident builds occupy, on the device too."""
        builds = self.memory.snapshot()["builds"]
        assert [b["pins"] for b in builds] == [0] * len(builds)
        assert {b["state"] for b in builds} <= {"resident", "asleep", "failed"}
        assert self.memory.used_bytes == sum(b["bytes"] for b in builds)
        assert set(self.processor.memory) == {b["build"] for b in builds if b["state"] != "failed"}
