"""Variants next to those that sessions use: they come into memory that nobody wants, and leave for whoever does."""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.clock import NS_PER_MS
from appliance.domain.catalogue import Quota
from appliance.domain.errors import ApplianceError, DeadlineExceeded
from appliance.lab.plan import plan_one
from appliance.policies.residency.base import IN_USE, Wish
from appliance.runtime.decisions.document import record_of
from appliance.runtime.memory.build import LoadedBuild
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.harness.lanes import examples
from tests.runtime.at_work import at_work, engine

NEVER_NS = 10**15
SIZES = {f"v{size}": Cost(size, load_ms=10) for size in (15, 14, 13, 12, 11, 10)}

NEAR_V13 = ("v12", "v14", "v11", "v15", "v10")
"""The others, the nearest first."""


def bench_of(budget: int) -> EngineBench:
    """With one application of all sizes."""
    return engine(SIZES, budget)


def used(*names: str, near: tuple[str, ...] = ()) -> tuple[Wish, ...]:
    """Sessions use these variants, and may switch to those, the nearest first."""
    wishes = [Wish(name, NEVER_NS, IN_USE) for name in names]
    return *wishes, *(Wish(name, NEVER_NS, 0, distance) for distance, name in enumerate(near, 1))


def use(bench: EngineBench, *names: str, near: tuple[str, ...] = (), application: str = "t/app") -> None:
    bench.core.residency.wish(application, used(*names, near=near))


def there(bench: EngineBench, application: str = "t/app") -> set[str]:
    """Variants that a frame would find in memory."""
    servables = bench.catalogue.entry(application).servables
    return {name for name, servable in servables.items() if bench.memory.is_resident(servable.build_id)}


async def in_use(bench: EngineBench, name: str) -> None:
    """As a session's first frame has it."""
    application = bench.catalogue.application("t/app")
    assert application is not None
    await bench.availability.load(application, name)


@pytest.mark.parametrize(
    ("budget", "loaded", "wishes", "expected", "loads"),
    [
        (34, ("v13",), used("v13", near=NEAR_V13), {"v13", "v12"}, 2),
        (35, ("v13",), used("v13", near=NEAR_V13), {"v13", "v12", "v10"}, 3),
        (50, ("v13",), used("v13", near=NEAR_V13), {"v13", "v12", "v14", "v11"}, 4),
        (45, (), used("v14", "v11"), {"v14", "v11"}, 2),
        (45, ("v11", "v10"), used("v11", "v14"), {"v14", "v11", "v10"}, 3),
        (20, ("v11",), used("v11", "v14"), {"v11"}, 1),
        (20, ("v11",), (Wish("v11", NEVER_NS, IN_USE - 1), Wish("v14", NEVER_NS, IN_USE)), {"v14"}, 2),
    ],
    ids=[
        "room for one, the nearest",
        "for another one that is smaller",
        "for three",
        "two sessions: both, and no better one",
        "the better one is loaded beside the other",
        "no room for both: what is there stays",
        "one is held until the other comes",
    ],
)
@story
async def test_variants_in_memory_are_those_in_use_and_their_neighbours(
    budget: int, loaded: tuple[str, ...], wishes: tuple[Wish, ...], expected: set[str], loads: int
) -> None:
    async with at_work(bench_of(budget), residency=True) as bench:
        for name in loaded:
            await in_use(bench, name)
        bench.core.residency.wish("t/app", wishes)
        for pause_ms in (5_000, 60_000):
            await bench.pause(pause_ms)
            assert (there(bench), bench.memory.loads) == (expected, loads)


@story
async def test_neighbours_follow_variant_in_use() -> None:
    """The farthest leave for nearer ones, the variant that was in use before among them."""
    async with at_work(bench_of(40), residency=True) as bench:
        await in_use(bench, "v13")
        use(bench, "v13", near=NEAR_V13)
        await bench.pause(5_000)
        assert there(bench) == {"v12", "v13", "v14"}
        use(bench, "v12", near=("v11", "v13", "v10", "v14", "v15"))
        await bench.pause(5_000)
        assert there(bench) == {"v11", "v12", "v13"}
        assert bench.memory.evictions == 0


@story
async def test_switch_between_variants_loads_none_where_all_neighbours_fit() -> None:
    async with at_work(bench_of(60), residency=True) as bench:
        await in_use(bench, "v11")
        use(bench, "v11", near=("v12", "v10", "v13"))
        await bench.pause(5_000)
        loads = bench.memory.loads
        for _ in range(5):
            use(bench, "v12", near=("v11", "v13", "v10"))
            await bench.pause(2_000)
            use(bench, "v11", near=("v12", "v10", "v13"))
            await bench.pause(2_000)
        assert bench.memory.loads == loads
        assert there(bench) == {"v10", "v11", "v12", "v13"}


@story
async def test_neighbours_leave_for_request_of_another_application() -> None:
    """As if they were not there: the request gets its best variant, and no application has a smaller one for it."""
    async with at_work(bench_of(60), residency=True) as bench:
        bench.add({"large": Cost(44), "small": Cost(5)}, name="other")
        bench.core.residency.leave_out("t/other")
        await in_use(bench, "v13")
        use(bench, "v13", near=NEAR_V13)
        await bench.pause(5_000)
        assert there(bench) == {"v10", "v11", "v12", "v13", "v14"}
        bench.core.residency.take_in("t/other")
        answer = await bench.infer(application="t/other")
        assert answer.variant == "large"
        assert "v13" in there(bench)
        assert bench.memory.evictions == 0, "they are let go before anybody is told to leave"
        left = [facts["problem"] for _, facts in bench.decisions.told]
        assert any(isinstance(one, dict) and one.get("rule") == "neighbours" for one in left)


@story
async def test_neighbours_take_no_memory_of_other_applications() -> None:
    """Neither what is in memory, nor the room for the smallest variant of an application that has none there."""
    bench = bench_of(60)
    idle = bench.add({"v": Cost(20)}, name="idle")
    bench.add({"large": Cost(30), "small": Cost(9)}, name="absent")
    await bench.availability.load(idle)
    await in_use(bench, "v13")
    bench.memory.unpin(await bench.memory.pin(bench.build("v", "t/idle"), 20, 20, None))
    for name in ("large", "small"):
        bench.core.arbiter.go_without(bench.build(name, "t/absent"))
    async with at_work(bench, residency=True):
        use(bench, "v13", near=NEAR_V13)
        await bench.pause(5_000)
        assert there(bench, "t/idle") == {"v"}
        assert there(bench) == {"v12", "v13"}
        assert bench.memory.budget_bytes - bench.memory.used_bytes >= 9


def comes(bench: EngineBench, name: str) -> None:
    """This neighbour has begun to come: it is decided, and its load is about to ask for room."""
    bench.core.residency.neighbours.fill()
    assert bench.core.arbiter.beside.coming == bench.build(name)


async def request_for(bench: EngineBench, name: str, within_ms: float = 500) -> LoadedBuild:
    """As a request waits for a variant."""
    cost, deadline_ns = SIZES[name], bench.clock.now_ns() + int(within_ms * NS_PER_MS)
    return await bench.memory.pin(bench.build(name), cost.resident_bytes, cost.peak_bytes, deadline_ns)


@pytest.mark.parametrize(
    ("idle", "near", "budget"),
    [
        ({"stray": Cost(8), "v": Cost(20)}, ("v12", "v14"), 50),
        ({"v": Cost(20, asleep_bytes=6, wake_ms=1)}, ("v12",), 30),
    ],
    ids=["even if no application needs it", "nor one that sleeps"],
)
@story
async def test_neighbour_whose_room_is_taken_evicts_no_build(
    idle: dict[str, Cost], near: tuple[str, ...], budget: int
) -> None:
    """Between the decision and the load the free memory is taken: the neighbour does not come."""
    bench = bench_of(60)
    application = bench.add(idle, name="idle")
    for name, cost in idle.items():
        await bench.availability.load(application, name)
        if cost.asleep_bytes:
            bench.memory.release(bench.build(name, application.id))
    await in_use(bench, "v13")
    kept = {(row["build"], row["state"]) for row in bench.memory.snapshot()["builds"]}
    use(bench, "v13", near=near)
    comes(bench, "v12")
    bench.memory.resize(budget)
    await bench.pause(1_000)
    assert kept <= {(row["build"], row["state"]) for row in bench.memory.snapshot()["builds"]}
    assert there(bench) == {"v13"}
    assert bench.memory.loads_skipped == 1
    assert bench.core.arbiter.beside.neighbours == set()


@story
async def test_neighbour_whose_room_is_taken_evicts_no_nearer_neighbour() -> None:
    bench = bench_of(60)
    await in_use(bench, "v13")
    use(bench, "v13", near=("v12", "v11"))
    comes(bench, "v12")
    await bench.pause(1_000)
    comes(bench, "v11")
    bench.memory.resize(30)
    await bench.pause(1_000)
    assert there(bench) == {"v13", "v12"}
    assert bench.memory.loads_skipped == 1


@pytest.mark.parametrize("is_first", [True, False])
@story
async def test_neighbour_loaded_for_request_becomes_requested_build(is_first: bool) -> None:
    """Whether the request has come just before the neighbour's load, or while the load asks for room: the build is
    there as what was asked for, and leaves no sooner than that would.
    """
    bench = bench_of(60)
    await in_use(bench, "v13")
    use(bench, "v13", near=("v12",))
    comes(bench, "v12")
    bench.memory.resize(20)
    build = await (request_for(bench, "v12") if is_first else asyncio.create_task(request_for(bench, "v12")))
    bench.memory.unpin(build)
    assert there(bench) == {"v12"}
    beside = bench.core.arbiter.beside
    assert (beside.coming, beside.neighbours) == (None, set())


@story
async def test_neighbour_whose_request_gave_up_evicts_no_build() -> None:
    """While the request waits its load may evict others; afterwards the build is a neighbour as before."""
    bench = bench_of(60)
    await in_use(bench, "v13")
    runs = bench.memory.pin_resident(bench.build("v13"))
    assert runs is not None
    use(bench, "v13", near=("v12",))
    comes(bench, "v12")
    bench.memory.resize(20)
    with pytest.raises(DeadlineExceeded):
        await asyncio.create_task(request_for(bench, "v12", within_ms=100))
    bench.memory.unpin(runs)
    await bench.pause(1_000)
    assert there(bench) == {"v13"}
    assert (bench.memory.evictions, bench.memory.loads_skipped) == (0, 1)
    assert bench.core.arbiter.beside.neighbours == set()


@story
async def test_build_unloaded_before_wish_is_no_neighbour() -> None:
    """The wish goes by what memory holds now, not by what it held at the last decision."""
    bench = bench_of(60)
    await in_use(bench, "v13")
    await in_use(bench, "v12")
    assert bench.core.arbiter.neighbours(bench.memory.residents()) == []
    bench.memory.release(bench.build("v12"))
    await bench.pause(1_000)
    use(bench, "v13", near=("v12",))
    assert bench.core.arbiter.beside.neighbours == set()


@story
async def test_request_evicts_variant_in_use_as_last_resort() -> None:
    """As it would evict the best one, when nothing else makes room: the request does not wait for patience to end."""
    async with at_work(engine(SIZES, 40, patience_ms=None), residency=True) as bench:
        bench.add({"v": Cost(38)}, name="other")
        bench.core.residency.leave_out("t/other")
        use(bench, "v14", "v11")
        await bench.pause(5_000)
        bench.core.residency.take_in("t/other")
        assert (await bench.infer(application="t/other", within_ms=500)).variant == "v"


@pytest.mark.parametrize("eviction", ["expected-utility", "iws-bfe", "ws-bfe"])
@pytest.mark.parametrize(
    ("substitutes", "stays"), [((), set()), (("v12", "v10"), {"v10"}), (("v12",), set()), (("v15",), set())]
)
@story
async def test_request_has_variant_in_use_replaced_by_smaller_one_that_would_do(
    eviction: str, substitutes: tuple[str, ...], stays: set[str]
) -> None:
    """The request needs 23 of 34 bytes. What would do in the place of the variant in use is brought for nothing else,
    though there is room, and a larger one takes nobody's place.
    """
    async with at_work(engine(SIZES, 34, eviction=eviction), residency=True) as bench:
        bench.add({"v": Cost(23)}, name="other")
        bench.core.residency.leave_out("t/other")
        await in_use(bench, "v13")
        wishes = [Wish(name, NEVER_NS, is_substitute=True) for name in substitutes]
        bench.core.residency.wish("t/app", (Wish("v13", NEVER_NS, IN_USE), *wishes))
        await bench.pause(5_000)
        assert there(bench) == {"v13"}
        bench.core.residency.take_in("t/other")
        await bench.infer(application="t/other")
        assert there(bench) == stays


@story
async def test_variant_of_idle_application_leaves_before_variants_in_use() -> None:
    async with at_work(bench_of(60), residency=True) as bench:
        bench.add({"v": Cost(20)}, name="idle")
        bench.add({"v": Cost(30)}, name="other")
        bench.core.residency.leave_out("t/other")
        use(bench, "v14", "v11")
        await bench.pause(5_000)
        assert there(bench, "t/idle") == {"v"}
        bench.core.residency.take_in("t/other")
        await bench.infer(application="t/other")
        assert there(bench) == {"v14", "v11"}
        assert there(bench, "t/idle") == set()


@story
async def test_neighbours_leave_a_while_after_last_session() -> None:
    """Meanwhile the application has its best variant again."""
    async with at_work(bench_of(60), residency=True) as bench:
        await in_use(bench, "v13")
        use(bench, "v13", near=("v12", "v14"))
        await bench.pause(5_000)
        bench.core.residency.wish("t/app", ())
        await bench.pause(20_000)
        assert there(bench) == {"v12", "v14", "v15"}
        await bench.pause(15_000)
        assert there(bench) == {"v15"}


@story
async def test_neighbour_decisions_can_be_replayed_from_records() -> None:
    """Also a decision whose problem has variants of other tenants in it, which bear no names."""
    async with at_work(bench_of(60), residency=True) as bench:
        bench.add({"secret": Cost(9), "hidden": Cost(8)}, name="theirs", tenant="u")
        use(bench, "v13", near=NEAR_V13)
        use(bench, "hidden", near=("secret",), application="u/theirs")
        await bench.pause(5_000)
    told = [facts for kind, facts in bench.decisions.told if kind == "neighbours"]
    assert len(told) >= 3
    for facts in told:
        record = record_of(bench.clock.wall_now(), "neighbours", facts)
        again = plan_one(dict(record.problem))
        assert {key: again[key] for key in ("bring", "leave", "reason")} == {
            key: record.answer[key] for key in ("bring", "leave", "reason")
        }
        owner = record.application or ""
        foreign = ("secret", "hidden") if owner.startswith("t/") else tuple(SIZES)
        assert not any(name in str((record.problem, record.answer)) for name in foreign)


@story
async def test_tenant_with_ceiling_gets_no_neighbours() -> None:
    """What it may have it may want for its own requests."""
    async with at_work(EngineBench(100), residency=True) as bench:
        bench.add(SIZES, quota=Quota(memory_ceiling_bytes=50))
        await in_use(bench, "v13")
        use(bench, "v13", near=("v12", "v14"))
        await bench.pause(5_000)
        assert there(bench) == {"v13"}


UNTIL_ONE_COMES = -1
"""A pause that ends as a neighbour begins to come, before its load has asked for room."""
steps = st.lists(
    st.tuples(
        st.sampled_from(["use", "use", "ask", "ask other", "frame", "resize", "end"]),
        st.integers(0, 5),
        st.integers(0, 5),
        st.sampled_from([0, 5, 200, 2_000, UNTIL_ONE_COMES]),
    ),
    max_size=20,
)


@examples(gate=60)
@example([("use", 0, 0, 200), ("use", 0, 0, UNTIL_ONE_COMES), ("resize", 0, 0, 0), ("frame", 1, 0, 0)], False)
@given(steps, st.booleans())
@story
async def test_memory_budget_holds_and_no_build_is_evicted_for_neighbour(
    drawn: list[tuple[str, int, int, int]], sleeps: bool
) -> None:
    """Whatever is used, asked for and taken away: the budget holds at every instant (the bench watches the device), and
    no build is told to leave for one that comes as a neighbour, nor for a request that waits no more.
    """
    names = list(SIZES)
    bench = EngineBench(60)
    kept = 1 if sleeps else None
    bench.add({f"v{n}": Cost(n, n + 2, load_ms=30, wake_ms=1, asleep_bytes=kept) for n in (15, 14, 13, 12, 11, 10)})
    bench.add({"large": Cost(40, load_ms=50), "small": Cost(8, load_ms=20)}, name="other")
    one_comes = asyncio.Event()
    come_beside = bench.core.arbiter.come_beside
    memory, used = bench.memory, bench.core.arbiter.beside

    def watched(build_id: str, *, is_neighbour: bool) -> None:
        one_comes.set()
        come_beside(build_id, is_neighbour=is_neighbour)

    bench.core.arbiter.come_beside = watched  # type: ignore[method-assign]
    asked: Counter[str] = Counter()
    pin = memory.pin

    async def pinned(build_id: str, *sizes: Any, is_urgent: bool = True, **more: Any) -> LoadedBuild:
        asked[build_id] += is_urgent
        try:
            return await pin(build_id, *sizes, is_urgent=is_urgent, **more)
        finally:
            asked[build_id] -= is_urgent

    memory.pin = pinned  # type: ignore[method-assign]
    emit = bench.telemetry.emit

    def seen(event: str, **facts: Any) -> None:
        emit(event, **facts)
        if event != "variant evicted":
            return
        newcomer = facts["newcomer"]
        assert newcomer != used.coming, "it takes the place of another one"
        assert newcomer not in used.neighbours, "it counts as one that takes nobody's place"
        coming = memory.build(newcomer)
        assert coming is None or asked[newcomer] or not coming.is_urgent, "no request waits for it"

    bench.telemetry.emit = seen  # type: ignore[method-assign]
    async with at_work(bench, residency=True):
        for do, one, two, pause_ms in drawn:
            try:
                if do == "use":
                    near = sorted(names, key=lambda name: abs(names.index(name) - one))
                    use(bench, names[one], *({names[two]} if two % 2 else ()), near=tuple(near[1:]))
                elif do == "end":
                    bench.core.residency.wish("t/app", ())
                elif do == "resize":
                    memory.resize(30 + 6 * one)
                elif do == "ask":
                    await bench.infer(within_ms=500)
                elif do == "frame":
                    await bench.infer(within_ms=500, variant=names[one], is_frame=True)
                else:
                    await bench.infer(application="t/other", within_ms=500)
            except ApplianceError:
                pass  # it found no room, or was late
            if pause_ms == UNTIL_ONE_COMES:
                one_comes.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(2):
                        await one_comes.wait()
            else:
                await bench.pause(pause_ms)
            assert used.all_in_use().isdisjoint(used.neighbours)
        await bench.pause(40_000)
