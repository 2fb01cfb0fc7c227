"""What memory there is for variants, beside processes that take some of it."""

from collections.abc import Collection

import pytest

from appliance.domain.catalogue import Quota
from appliance.domain.errors import CeilingReached, OutOfMemory
from appliance.domain.overhead import FORK_SERVERS
from appliance.policies.residency.base import ResidencyProblem
from appliance.runtime.ports import Occupied
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work

MB = 10**6


def box(budget_mb: int = 200, quota: Quota | None = None) -> EngineBench:
    """Two applications, of 100 and of 60 MB; their tenant has a quota."""
    bench = EngineBench(budget_mb * MB)
    for name, size in (("large", 100), ("small", 60)):
        bench.add({"v": Cost(size * MB)}, name=name, quota=quota)
    return bench


def fits(bench: EngineBench, name: str) -> bool:
    return bench.core.account.fits(bench.catalogue.entry(f"t/{name}").servables["v"])


async def begin_planner(bench: EngineBench, megabytes: int) -> None:
    async with bench.core.planner_processes.process("adaptation", megabytes * MB).beginning():
        pass


@story
async def test_memory_account_excludes_guards_and_fork_servers_but_not_planners() -> None:
    """Planners end where there is no room otherwise."""
    bench = box()
    await begin_planner(bench, 50)
    assert (bench.memory.builds_bytes, bench.core.account.room_for(())) == (150 * MB, 200 * MB)
    bench.memory.set_overhead(60 * MB)
    bench.memory.set_overhead(45 * MB, of=FORK_SERVERS)
    assert (bench.memory.builds_bytes, bench.core.account.room_for(())) == (45 * MB, 95 * MB)
    assert (fits(bench, "large"), fits(bench, "small")) == (False, True)


@story
async def test_tenant_memory_account_ends_at_tenant_ceiling() -> None:
    """The tenant's guards count as well."""
    bench = box(quota=Quota(memory_ceiling_bytes=70 * MB))
    assert (bench.core.account.room_of("t"), fits(bench, "large"), fits(bench, "small")) == (70 * MB, False, True)
    bench.core.charge_guards({("t", "cpu"): 20 * MB})
    assert (bench.core.account.room_of("t"), fits(bench, "small")) == (50 * MB, False)
    bench.core.charge_guards({("t", "cpu"): 80 * MB})
    assert bench.core.account.room_of("t") == 0


@story
async def test_residency_policy_is_told_memory_left_beside_processes() -> None:
    async with at_work(box()) as bench:
        bench.add({"fp32": Cost(90 * MB), "int8": Cost(20 * MB)}, name="two")
        bench.memory.set_overhead(100 * MB)
        await bench.infer(application="t/two")
        problems = [told["problem"] for kind, told in bench.decisions.told if kind == "residency"]
    assert {one.memory_bytes for one in problems if isinstance(one, ResidencyProblem)} == {100 * MB}


@story
async def test_refusal_names_the_processes_that_hold_memory() -> None:
    """With what each sort takes, the largest first, also where the request can never fit."""
    async with at_work(box(150)) as bench:
        bench.memory.set_overhead(31 * MB)
        bench.memory.set_overhead(22 * MB, of=FORK_SERVERS)
        with pytest.raises(OutOfMemory) as caught:
            await bench.infer(application="t/large")
        processes = [
            {"application": None, "mb": 31.0, "why": "guards", "until_s": None},
            {"application": None, "mb": 22.0, "why": "fork servers", "until_s": None},
        ]
        assert (caught.value.can_fit, caught.value.blockers) == (True, processes)
        assert "guards 31 MB; fork servers 22 MB; " in str(caught.value)
        bench.add({"v": Cost(160 * MB)}, name="largest")
        with pytest.raises(OutOfMemory) as never:
            await bench.infer(application="t/largest")
    assert not never.value.can_fit
    assert "guards 31 MB; fork servers 22 MB; raise the memory budget" in str(never.value)


class Guards:
    """Port `IdleProcesses`: one process, which holds builds that are awake."""

    def __init__(self, bench: EngineBench, megabytes: int, *builds: str) -> None:
        self._bench, self._builds, self._bytes = bench, builds, megabytes * MB
        bench.memory.set_overhead(self._bytes)
        bench.memory.when_short(self)

    def idle_bytes(self, wanted: Collection[str]) -> int:
        return 0

    def end_idle(self, wanted: Collection[str]) -> bool:
        return False

    def occupied(self, wanted: Collection[str]) -> Collection[Occupied]:
        is_wanted = not self._bench.memory.overheads() or not set(wanted).isdisjoint(self._builds)
        return () if is_wanted else [Occupied(self._builds, self._bytes, self._end)]

    def _end(self) -> None:
        for build_id in self._builds:
            del self._bench.processor.memory[build_id]
            self._bench.memory.lost(build_id)
        self._bench.memory.set_overhead(0)


@pytest.mark.parametrize(("planner_mb", "needs_mb"), [(0, 150), (50, 190)])
@story
async def test_guard_with_idle_builds_ends_when_request_needs_memory(planner_mb: int, needs_mb: int) -> None:
    """A guard of 60 holds an idle build of 60 in 200, and there may be a planner of 50: all of it makes room."""
    async with at_work(box()) as bench:
        bench.add({"v": Cost(needs_mb * MB)}, name="largest", tenant="u")
        if planner_mb:
            await begin_planner(bench, planner_mb)
        await bench.infer(application="t/small")
        Guards(bench, 60, bench.build("v", "t/small"))
        await bench.infer(application="u/largest", tenant="u")
    assert bench.memory.resident_set() == [bench.build("v", "u/largest")]
    assert bench.memory.overheads() == {}


@pytest.mark.parametrize(("guaranteed", "is_given"), [(100, False), (85, True)])
@story
async def test_guard_with_idle_builds_ends_only_if_tenant_keeps_guarantee(guaranteed: int, is_given: bool) -> None:
    """A tenant has two guards of 20 in 200, one with a build of 40, and one of 65. Without the first build it has 105,
    without its guard, too, 85.
    """
    async with at_work(EngineBench(200 * MB)) as bench:
        quota = Quota(memory_guarantee_bytes=guaranteed * MB)
        bench.add({"v40": Cost(40 * MB)}, name="older", quota=quota)
        bench.add({"v65": Cost(65 * MB)}, name="newer", quota=quota)
        bench.add({"v": Cost(115 * MB)}, name="largest", tenant="u")
        await bench.infer(application="t/older")
        await bench.infer(application="t/newer")
        older, newer = bench.build("v40", "t/older"), bench.build("v65", "t/newer")
        Guards(bench, 20, older)
        bench.core.charge_guards({("t", "cpu"): 20 * MB, ("t", "gpu"): 20 * MB})
        if is_given:
            await bench.infer(application="u/largest", tenant="u")
        else:
            with pytest.raises(OutOfMemory):
                await bench.infer(application="u/largest", tenant="u")
    assert (older in bench.memory.resident_set(), newer in bench.memory.resident_set()) == (not is_given, True)


@story
async def test_guard_with_build_in_use_stays_when_request_needs_memory() -> None:
    """The request is refused, and the refusal names what holds the memory."""
    async with at_work(box()) as bench:
        bench.add({"v": Cost(150 * MB)}, name="largest", tenant="u")
        await bench.infer(application="t/small")
        small = bench.build("v", "t/small")
        Guards(bench, 60, small)
        held = bench.memory.pin_resident(small)
        assert held is not None
        with pytest.raises(OutOfMemory) as refused:
            await bench.infer(application="u/largest", tenant="u")
        bench.memory.unpin(held)
    assert [(one["why"], one["mb"]) for one in refused.value.blockers] == [("guards", 60.0), ("pinned", 60.0)]
    assert bench.memory.overheads() == {"guards": 60 * MB}


@story
async def test_request_above_tenant_ceiling_ends_no_planner_process() -> None:
    """There is memory; what the tenant may take is less."""
    bench = box(quota=Quota(memory_ceiling_bytes=70 * MB))
    await begin_planner(bench, 50)
    async with at_work(bench):
        with pytest.raises(CeilingReached):
            await bench.infer(application="t/large")
    assert bench.memory.overheads() == {"planner processes": 50 * MB}
