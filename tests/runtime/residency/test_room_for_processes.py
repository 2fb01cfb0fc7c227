"""A process that a request needs finds room by the rules of a load for that request; processes that can be done without
end before models leave.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

import pytest

from appliance.domain.catalogue import Quota
from appliance.domain.errors import CeilingReached, OutOfMemory
from appliance.domain.overhead import FORK_SERVERS, GUARDS
from appliance.policies.residency import DEFAULT, EVICTION_POLICIES
from appliance.runtime.ports import Occupied
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.at_work import at_work

GUARANTEED = Quota(memory_guarantee_bytes=80)


def box(
    budget: int = 100, *, patience_ms: float | None = None, eviction: str = DEFAULT, server_bytes: int = 0
) -> EngineBench:
    """Requests that come each second are expected all the time."""
    return EngineBench(
        budget,
        delta_share_max=1000,
        delta_ms=3000,
        patience_ms=patience_ms,
        eviction=eviction,
        server_bytes={"cpu": server_bytes},
    )


async def expect(bench: EngineBench, application: str, *, tenant: str) -> None:
    """Have an application asked each second, so that it is in its window."""
    for _ in range(4):
        await bench.infer(application=application, tenant=tenant)
        await bench.pause(1000)


async def begin_guard(bench: EngineBench, count_bytes: int = 30) -> None:
    """Begin a guard of the tenant `beta`, as for its texts, and what it is forked of."""
    server_bytes = bench.core.shares.server_to_come("cpu")
    async with bench.core.room_for_guard("beta", "cpu", count_bytes):
        bench.core.charge_guards({("beta", "cpu"): count_bytes})
        if server_bytes:
            bench.core.charge_servers({"cpu": server_bytes})


async def begin_planner(bench: EngineBench, count_bytes: int = 30) -> None:
    async with bench.core.planner_processes.process("adaptation", count_bytes).beginning():
        pass


def resident(bench: EngineBench) -> dict[str, str | None]:
    """Application → the variant that it has in memory."""
    return {row["application"]: row["resident"] for row in bench.core.residency.rows()}


class IdleGuards:
    """Port `IdleProcesses`: the guard of one tenant, and the fork server of guards, which ends after the guard."""

    def __init__(self, bench: EngineBench) -> None:
        self._bench = bench
        bench.memory.when_short(self)

    def idle_bytes(self, wanted: Collection[str]) -> int:
        return sum(self._bench.memory.overheads().get(of, 0) for of in (GUARDS, FORK_SERVERS))

    def end_idle(self, wanted: Collection[str]) -> bool:
        there = self._bench.memory.overheads()
        if GUARDS in there:
            self._bench.core.charge_guards({})
        elif FORK_SERVERS in there:
            self._bench.core.charge_servers({})
        return GUARDS in there or FORK_SERVERS in there

    def occupied(self, wanted: Collection[str]) -> Sequence[Occupied]:
        return ()


# -- a process that a request needs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_expected", [True, False])
@pytest.mark.parametrize("patience_ms", [None, 0, 200])
@story
async def test_guard_for_text_beside_guaranteed_model_is_refused(is_expected: bool, patience_ms: float | None) -> None:
    """The model neither leaves nor shrinks below its tenant's guarantee, in its window or not."""
    async with at_work(box(patience_ms=patience_ms), residency=True) as bench:
        bench.add({"v": Cost(80), "s": Cost(20)}, name="a", tenant="alpha", quota=GUARANTEED)
        await expect(bench, "alpha/a", tenant="alpha")
        if not is_expected:
            await bench.pause(60_000)
        with pytest.raises(OutOfMemory) as refused:
            await begin_guard(bench)
        assert resident(bench) == {"alpha/a": "v"}
    assert refused.value.can_fit
    assert [(one["application"], one["why"]) for one in refused.value.blockers] == [(None, "guaranteed")]
    assert "the process that reads texts needs" in str(refused.value)
    assert bench.memory.free_bytes == 20, "nothing stays promised"


@story
async def test_guard_for_text_shrinks_expected_model_once_patience_is_over() -> None:
    """The expected model gets its smaller variant and stays warm."""
    async with at_work(box(patience_ms=200), residency=True) as bench:
        bench.add({"v": Cost(80), "s": Cost(20)}, name="a", tenant="alpha")
        await expect(bench, "alpha/a", tenant="alpha")
        begun_ns = bench.clock.now_ns()
        await begin_guard(bench)
        assert bench.clock.now_ns() - begun_ns >= 200e6
        assert resident(bench) == {"alpha/a": "s"}
    assert bench.memory.overheads() == {GUARDS: 30}


@pytest.mark.parametrize("is_given_up", [True, False])
@story
async def test_guard_for_text_begins_after_smaller_variant_whose_load_needs_its_room(is_given_up: bool) -> None:
    """The load of a variant of 20 takes 90 of 100, and the guard 75: they come one after the other. Where nobody waits
    for the guard any more the variant comes all the same, and nothing stays promised.
    """
    async with at_work(box(patience_ms=0), residency=True) as bench:
        bench.add({"v": Cost(80), "s": Cost(20, 90)}, name="a", tenant="alpha")
        await expect(bench, "alpha/a", tenant="alpha")
        beginning = asyncio.create_task(begin_guard(bench, 75))
        await bench.pause(50)
        assert not beginning.done()
        if is_given_up:
            beginning.cancel()
            await asyncio.wait([beginning])
        else:
            await beginning
        await bench.pause(150)
        assert resident(bench)["alpha/a"] is not None
        if not is_given_up:
            assert (resident(bench), bench.memory.overheads()) == ({"alpha/a": "s"}, {GUARDS: 75})
    held = sum(build.bytes for build in bench.memory.residents())
    assert bench.memory.free_bytes == 100 - held - sum(bench.memory.overheads().values())


@pytest.mark.parametrize("eviction", sorted(EVICTION_POLICIES))
@pytest.mark.parametrize("is_expected", [True, False])
@pytest.mark.parametrize("patience_ms", [None, 0])
@pytest.mark.parametrize("quota", [None, Quota(memory_guarantee_bytes=20)])
@story
async def test_guard_for_text_puts_out_what_load_of_its_size_does(
    eviction: str, is_expected: bool, patience_ms: float | None, quota: Quota | None
) -> None:
    """The same models leave or shrink for both, or both are refused."""
    left: list[object] = []
    for is_process in (True, False):
        async with at_work(box(eviction=eviction, patience_ms=patience_ms), residency=True) as bench:
            bench.add({"v": Cost(60), "s": Cost(20)}, name="a", tenant="alpha", quota=quota)
            bench.add({"v": Cost(30)}, name="b", tenant="alpha", quota=quota)
            bench.add({"v": Cost(40)}, name="load", tenant="beta")
            await bench.infer(application="alpha/b", tenant="alpha")
            await bench.pause(5000)
            await expect(bench, "alpha/a", tenant="alpha")
            if not is_expected:
                await bench.pause(60_000)
            try:
                if is_process:
                    await begin_guard(bench, 40)
                else:
                    await bench.infer(application="beta/load", tenant="beta")
            except OutOfMemory as refused:
                left.append([one["why"] for one in refused.blockers])
            left.append({name: variant for name, variant in resident(bench).items() if name != "beta/load"})
    assert left[: len(left) // 2] == left[len(left) // 2 :]


@story
async def test_guard_for_text_above_ceiling_puts_out_models_of_its_tenant_alone() -> None:
    """And is refused with the ceiling where those are in use."""
    async with at_work(box(), residency=True) as bench:
        bench.add({"v": Cost(30)}, name="own", tenant="beta", quota=Quota(memory_ceiling_bytes=50))
        bench.add({"v": Cost(30)}, name="other", tenant="alpha")
        await bench.infer(application="alpha/other", tenant="alpha")
        await bench.infer(application="beta/own", tenant="beta")
        held = bench.memory.pin_resident(bench.build("v", "beta/own"))
        assert held is not None
        with pytest.raises(CeilingReached) as refused:
            await begin_guard(bench)
        assert [(one["application"], one["why"]) for one in refused.value.blockers] == [("beta/own", "pinned")]
        bench.memory.unpin(held)
        await begin_guard(bench)
        assert resident(bench) == {"alpha/other": "v", "beta/own": None}


@story
async def test_guard_that_can_never_fit_is_refused_at_once() -> None:
    async with at_work(box(), residency=True) as bench:
        bench.add({"v": Cost(80)}, name="a", tenant="alpha")
        await bench.infer(application="alpha/a", tenant="alpha")
        begun_ns = bench.clock.now_ns()
        with pytest.raises(OutOfMemory) as refused:
            await begin_guard(bench, 101)
        assert (bench.clock.now_ns(), refused.value.can_fit) == (begun_ns, False)
        assert resident(bench) == {"alpha/a": "v"}


@pytest.mark.parametrize("is_text_first", [True, False])
@story
async def test_guaranteed_tenant_is_served_beside_tenant_that_sends_texts(is_text_first: bool) -> None:
    """65 MB, of which 30 are guaranteed to a tenant with a model of 32, whose load takes 63. A guard takes 23, and what
    it is forked of 21: both end for the model when they are idle, and do not begin where it would have to leave.
    """
    async with at_work(box(65, server_bytes=21), residency=True) as bench:
        bench.add({"v": Cost(32, 63)}, name="q1", tenant="alpha", quota=Quota(memory_guarantee_bytes=30))
        IdleGuards(bench)
        if is_text_first:
            await begin_guard(bench, 23)
            assert bench.memory.overheads() == {GUARDS: 23, FORK_SERVERS: 21}
        for _ in range(3):
            await bench.infer(application="alpha/q1", tenant="alpha")
            with pytest.raises(OutOfMemory, match="guaranteed"):
                await begin_guard(bench, 23)
            assert (resident(bench), bench.memory.overheads()) == ({"alpha/q1": "v"}, {})
        await begin_guard(bench, 12)


@story
async def test_request_that_only_fork_server_stands_in_way_of_can_fit() -> None:
    """It is not told that it never will."""
    async with at_work(box(65), residency=True) as bench:
        bench.add({"v": Cost(32, 63)}, name="q1", tenant="alpha")
        bench.core.charge_servers({"cpu": 21})
        with pytest.raises(OutOfMemory) as refused:
            await bench.infer(application="alpha/q1", tenant="alpha")
    assert (refused.value.can_fit, [one["why"] for one in refused.value.blockers]) == (True, [FORK_SERVERS])


# -- processes that can be done without --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "models", "variants", "left", "evictions"),
    [
        (begin_planner, [{"v": 40}, {"v": 40}, {"v": 40}], ["v", "v", "v"], {}, 0),
        (begin_planner, [{"fp32": 50, "int8": 15}, {"fp32": 80}], ["fp32", "fp32"], {}, 0),
        (begin_guard, [{"v": 40}, {"v": 40}, {"v": 40}], ["v", "v", "v"], {FORK_SERVERS: 10}, 0),
        (begin_planner, [{"v": 60}, {"v": 100}], [None, "v"], {"planner processes": 30}, 1),
    ],
    ids=[
        "a planner, lest a model leaves",
        "a planner, lest a model shrinks",
        "a guard, not its fork server, whose end would spare no further model",
        "not a planner whose end would spare no model",
    ],
)
@story
async def test_idle_process_of_thirty_ends_for_request_if_that_spares_models(
    begin: Callable[[EngineBench], Awaitable[None]],
    models: list[dict[str, int]],
    variants: list[str | None],
    left: dict[str, int],
    evictions: int,
) -> None:
    """In 130."""
    names = [f"t/{name}" for name, _ in zip("abc", models, strict=False)]
    bench = box(130, server_bytes=10)
    IdleGuards(bench)
    for name, sizes in zip(names, models, strict=True):
        bench.add({variant: Cost(size) for variant, size in sizes.items()}, name=name[2:])
    async with at_work(bench, residency=True):
        await begin(bench)
        for name in names:
            await bench.infer(application=name)
        assert resident(bench) == dict(zip(names, variants, strict=True))
    assert (bench.memory.overheads(), bench.memory.evictions) == (left, evictions)


@story
async def test_idle_planner_process_ends_before_models_leave_for_guard() -> None:
    bench = box(130)
    for name in "ab":
        bench.add({"v": Cost(40)}, name=name)
    async with at_work(bench, residency=True):
        for name in "ab":
            await bench.infer(application=f"t/{name}")
        await begin_planner(bench)
        await begin_guard(bench, 40)
        assert resident(bench) == {"t/a": "v", "t/b": "v"}
    assert bench.memory.overheads() == {GUARDS: 40}


@story
async def test_planner_process_begins_in_free_memory_only() -> None:
    """No model leaves for it, expected or not."""
    bench = box(130)
    for name in "ab":
        bench.add({"v": Cost(55)}, name=name)
    async with at_work(bench, residency=True):
        for name in "ab":
            await bench.infer(application=f"t/{name}")
        await bench.pause(60_000)
        with pytest.raises(OSError, match="no room"):
            await begin_planner(bench)
        assert resident(bench) == {"t/a": "v", "t/b": "v"}
        await begin_planner(bench, 20)
    assert bench.memory.overheads() == {"planner processes": 20}
