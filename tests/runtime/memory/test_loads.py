"""Builds that come: loads joined and reserved, room made or waited for, and nothing left behind when things go
wrong.
"""

import asyncio
import gc
from collections.abc import Callable, Collection, Sequence

import pytest

from appliance.clock import NS_PER_S
from appliance.domain.errors import DeadlineExceeded, LoadFailed, OutOfMemory
from appliance.runtime.memory.room import Replacement, ResidentBuild, RoomPlan, RoomProblem
from tests.fakes.clock import settle, story
from tests.fakes.memory import MemoryBench
from tests.fakes.processor import Cost

# -- loading -----------------------------------------------------------------------------------------------------------


@story
async def test_load_reserves_its_peak() -> None:
    """While it loads, the peak counts; when it has loaded, the resident size."""
    bench = MemoryBench({"a": Cost(10, 18)}, budget=20)
    task = asyncio.create_task(bench.use("a", hold_ms=50))
    await settle()
    assert bench.memory.used_bytes == 18
    await task
    assert bench.memory.used_bytes == 10


@story
async def test_build_with_a_peak_above_the_budget_is_refused_at_once() -> None:
    """No build is evicted for it."""
    bench = MemoryBench({"a": Cost(10), "big": Cost(10, 21)}, budget=20)
    held = await bench.pin("a")
    start_ns = bench.clock.now_ns()
    with pytest.raises(OutOfMemory) as caught:
        await bench.use("big")
    assert bench.elapsed_ms(start_ns) == 0
    bench.memory.unpin(held)
    assert (caught.value.need_bytes, caught.value.budget_bytes) == (21, 20)
    assert "ever" in bench.events.of("variant load failed")[0]["reason"]
    assert "try again" not in bench.events.of("variant load failed")[0]["reason"]
    assert bench.resident() == ["a"]
    bench.assert_quiet()


@story
async def test_failed_load_leaves_the_ledger_unchanged() -> None:
    """All requests that waited get the reason, the bytes are free again, and the next request tries anew."""
    failure = LoadFailed(build_id="a", reason="bad file")
    bench = MemoryBench({"a": Cost(failures=[failure]), "b": Cost()}, budget=20)
    await bench.use("b")
    before = bench.memory.used_bytes
    answers = await asyncio.gather(*(bench.use("a") for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [LoadFailed] * 3
    assert bench.memory.used_bytes == before
    assert bench.memory.load_failures == 1
    assert bench.events.of("variant load failed")[0]["reason"] == str(failure)
    bench.assert_quiet()
    await bench.use("a")
    assert bench.resident() == ["a", "b"]


@story
async def test_build_is_not_loaded_ahead_for_longer_after_each_failure() -> None:
    """A second, then twice as long each time, five minutes at most, and not at all once it has been loaded."""
    failures: list[Exception] = [LoadFailed(build_id="a", reason="bad file") for _ in range(11)]
    bench = MemoryBench({"a": Cost(failures=failures.copy())}, budget=20)
    told: list[str] = []
    bench.memory.watch(lambda build_id: None, lambda build_id: None, told.append)
    pauses_s = []
    for _ in failures:
        with pytest.raises(LoadFailed):
            await bench.use("a")
        build = bench.memory.build("a")
        assert build is not None
        pauses_s.append((build.again_ns - bench.clock.now_ns()) / NS_PER_S)
    assert pauses_s == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert told == ["a"] * 11
    await bench.use("a")
    build = bench.memory.build("a")
    assert build is not None
    assert (build.failures, build.again_ns) == (0, 0)


@story
async def test_load_that_fails_below_is_reported_as_failed() -> None:
    """An exception that is no error of ours becomes LoadFailed with its type and text."""
    bench = MemoryBench({"a": Cost(failures=[ValueError("odd")])}, budget=20)
    with pytest.raises(LoadFailed, match="ValueError: odd"):
        await bench.use("a")
    bench.source.missing.add("a")
    with pytest.raises(LoadFailed, match="missing"):
        await bench.use("a")
    bench.assert_quiet()


# -- replacing ---------------------------------------------------------------------------------------------------------


@story
async def test_least_recently_used_build_makes_room() -> None:
    """A load replaces the longest unused build; it starts only after the victim's memory is back."""
    bench = MemoryBench({n: Cost(10, 10, load_ms=10, unload_ms=30) for n in "abc"}, budget=20)
    await bench.use("a")
    await bench.use("b", hold_ms=1)
    await bench.use("a", hold_ms=1)
    assert await bench.took_ms(bench.use("c")) == 40
    assert bench.resident() == ["a", "c"]
    assert bench.events.of("variant evicted")[0] == {
        "build": "b", "bytes": 10, "used_bytes": 20, "applications": ["t/b"], "newcomer": "c",
    }  # fmt: skip
    assert bench.events.of("variant unloaded")[0]["bytes"] == 10
    assert bench.memory.evictions == 1


@story
async def test_evicted_build_is_recorded_with_the_problem_and_the_answer() -> None:
    """By the arbiter, which was asked; once, though memory may ask again."""
    bench = MemoryBench({n: Cost(10) for n in "ab"}, budget=10)
    await bench.use("a")
    await bench.use("b")
    ((kind, decision),) = bench.decisions.told
    problem, answer = decision["problem"], decision["answer"]
    assert isinstance(problem, dict)
    assert isinstance(answer, dict)
    assert (kind, problem["plan"], problem["rule"]) == ("residency", None, "nobody's")
    assert answer["actions"] == [{"application": None, "from": None, "to": None}]  # no application refers to it


@story
async def test_load_ahead_of_time_that_finds_no_room_is_skipped() -> None:
    """It has not failed: nothing of it is left, and no failure is reported."""
    bench = MemoryBench({n: Cost(10) for n in "ab"}, budget=10)
    held = await bench.pin("a")
    with pytest.raises(OutOfMemory):
        await bench.memory.pin("b", 10, 10, None, is_urgent=False)
    assert (bench.memory.loads_skipped, bench.memory.load_failures) == (1, 0)
    assert len(bench.events.of("variant load skipped")) == 1
    assert not bench.events.of("variant load failed")
    assert [b["build"] for b in bench.memory.snapshot()["builds"]] == ["a"]
    bench.memory.unpin(held)
    bench.assert_quiet()
    await bench.use("b")


@story
async def test_load_waits_until_the_pinned_build_in_its_way_is_free() -> None:
    """All is in use: the load goes on when the last pin goes, or is out of memory after `wait_ms_max`."""
    bench = MemoryBench({n: Cost(10, load_ms=10, unload_ms=5) for n in "ab"}, budget=10, wait_ms_max=1000)
    held = await bench.pin("a")
    start_ns = bench.clock.now_ns()
    with pytest.raises(OutOfMemory):
        await bench.use("b")
    assert bench.elapsed_ms(start_ns) == pytest.approx(1000, abs=1)
    newcomer = asyncio.create_task(bench.use("b"))
    await settle()
    assert not newcomer.done()
    assert bench.memory.is_resident("a")
    bench.memory.unpin(held)
    assert await bench.took_ms(newcomer) == 15
    assert bench.resident() == ["b"]
    bench.assert_quiet()


@story
async def test_deadline_ends_the_wait_of_its_own_request_only() -> None:
    """The request with a deadline is answered then; the request without goes on and gets the build."""
    bench = MemoryBench({"a": Cost(load_ms=100)}, budget=10)
    patient = asyncio.create_task(bench.use("a"))
    start_ns = bench.clock.now_ns()
    with pytest.raises(DeadlineExceeded) as caught:
        await bench.use("a", deadline_ms=30)
    assert bench.elapsed_ms(start_ns) == pytest.approx(30, abs=0.01)
    assert caught.value.waited_ms == pytest.approx(30, abs=0.01)
    await patient
    bench.assert_quiet()


@story
async def test_load_that_no_request_waits_for_any_more_is_called_off() -> None:
    """The only request for the build gives up while it waits for room: the load evicts nothing later."""
    bench = MemoryBench({n: Cost(10) for n in "ab"}, budget=10)
    held = await bench.pin("a")
    with pytest.raises(DeadlineExceeded):
        await bench.use("b", deadline_ms=20)
    await settle()
    bench.memory.unpin(held)
    await settle()
    assert bench.resident() == ["a"]
    assert bench.processor.loads["b"] == 0
    bench.assert_quiet()


@pytest.mark.parametrize(("failures", "deadline_ms"), [([], None), ([ValueError()], 50)], ids=["arrives", "fails"])
@story
async def test_memory_that_a_load_gives_back_goes_to_waiting_loads(
    failures: list[Exception], deadline_ms: float | None
) -> None:
    """The difference to its peak is there for others at once, whoever holds the build."""
    costs = {"a": Cost(10, 20, load_ms=100, failures=failures.copy()), "b": Cost(10, load_ms=10)}
    bench = MemoryBench(costs, budget=20)
    first = asyncio.create_task(bench.use("a", hold_ms=500, deadline_ms=deadline_ms))
    await settle()
    assert await bench.took_ms(bench.use("b")) == 110
    await asyncio.gather(first, return_exceptions=True)
    bench.assert_quiet()


class Planned:
    """Half an arbiter, whose plans are given: nobody has a ceiling, and sleepers leave as they come."""

    def __init__(self, plan: Callable[[RoomProblem], RoomPlan]) -> None:
        self.plan = plan

    def is_bounded(self, build_id: str) -> bool:
        return False

    def may_leave(self, problem: RoomProblem, builds: Collection[str], process_bytes: int) -> bool:
        return True

    def order_of_leaving(self, sleepers: Sequence[ResidentBuild]) -> list[str]:
        return [sleeper.build_id for sleeper in sleepers]

    def asleep_above_ceiling(self, sleepers: object, residents: object) -> Collection[str]:
        return ()


def nobody_leaves(problem: RoomProblem) -> RoomPlan:
    return RoomPlan((), 0, problem.need_bytes <= problem.free_bytes, "nobody leaves")


@story
async def test_eviction_policy_that_breaks_the_rules_is_caught() -> None:
    """A plan with a pinned victim is our own mistake: it is not carried out."""

    def wrong(problem: RoomProblem) -> RoomPlan:
        plan = nobody_leaves(problem)
        return plan if plan.sufficient else RoomPlan(("a",), 10, True, "wrong")

    bench = MemoryBench({n: Cost(10) for n in "abc"}, budget=20, arbiter=Planned(wrong))
    held = await bench.pin("a")
    await bench.use("b")
    with pytest.raises(AssertionError, match="in use"):
        await bench.use("c")
    assert bench.resident() == ["a", "b"]
    bench.memory.unpin(held)
    bench.assert_quiet()


@story
async def test_load_that_the_arbiter_refuses_does_not_wait() -> None:
    """With nothing in use and no eviction there is nothing to wait for: refused at once."""
    bench = MemoryBench({n: Cost(10) for n in "ab"}, budget=10, arbiter=Planned(nobody_leaves))
    await bench.use("a")
    start_ns = bench.clock.now_ns()
    with pytest.raises(OutOfMemory):
        await bench.use("b")
    assert bench.elapsed_ms(start_ns) == 0
    assert bench.resident() == ["a"]


@story
async def test_load_ahead_is_not_urgent_after_its_last_request_gave_up() -> None:
    """As long as a request waits for it, it asks for room as that does; afterwards it is refused as before."""
    hurries: list[bool] = []

    def noting(problem: RoomProblem) -> RoomPlan:
        hurries.append(problem.is_urgent)
        return nobody_leaves(problem)

    bench = MemoryBench({n: Cost(10) for n in "ab"}, budget=10, arbiter=Planned(noting))
    held = await bench.pin("a")
    start_ns = bench.clock.now_ns()
    ahead = asyncio.create_task(bench.memory.pin("b", 10, 10, None, is_urgent=False))
    requests = [asyncio.create_task(bench.use("b", deadline_ms=deadline_ms)) for deadline_ms in (50, 80)]
    for request in requests:
        with pytest.raises(DeadlineExceeded):
            await request
    with pytest.raises(OutOfMemory):
        await ahead
    assert hurries == [*(True for _ in hurries[1:]), False]
    assert bench.elapsed_ms(start_ns) == pytest.approx(80, abs=0.01)
    assert (bench.memory.loads_skipped, bench.memory.load_failures) == (1, 0)
    bench.memory.unpin(held)
    bench.assert_quiet()


@story
async def test_replacement_that_a_smaller_budget_has_no_room_for_is_given_up() -> None:
    """It waits for its victim to leave, without a limit; what was promised to it is free again for others."""
    bench = MemoryBench({"a": Cost(10, unload_ms=50), "b": Cost(20)}, budget=20)
    await bench.use("a")
    assert bench.memory.replace(Replacement("a", "b", 20, 20))
    await settle()
    bench.memory.resize(15)
    await bench.unloaded("a")
    assert not bench.memory.is_busy
    assert (bench.memory.loads_skipped, bench.memory.free_bytes) == (1, 15)
    await bench.use("a")
    bench.assert_quiet()


@pytest.mark.parametrize("failures", [[], [ValueError("odd")]], ids=["all well", "the first fails"])
@story
async def test_replacements_load_in_turn_where_their_peaks_do_not_fit_at_once(failures: list[Exception]) -> None:
    """36 hold 2 × 13; for a build that needs 29 both give way to builds that take 3 and need 14 while they load: both
    come, then the new build, and no application is left with nothing. One that fails holds up no other.
    """
    costs = {
        "a": Cost(13),
        "b": Cost(13),
        "a-small": Cost(3, 14, load_ms=10, failures=failures.copy()),
        "b-small": Cost(3, 14, load_ms=10),
        "new": Cost(17, 29, load_ms=50),
    }

    def replacing(problem: RoomProblem) -> RoomPlan:
        if problem.build_id != "new":
            return RoomPlan((), 0, True, "there is room")
        coming = tuple(Replacement(name, f"{name}-small", 3, 14) for name in "ab")
        return RoomPlan(("a", "b"), 26, True, "both are replaced", coming)

    bench = MemoryBench(costs, budget=36, arbiter=Planned(replacing))
    await bench.use("a")
    await bench.use("b")
    took_ms = await bench.took_ms(bench.use("new"))
    assert bench.resident() == [*([] if failures else ["a-small"]), "b-small", "new"]
    assert failures or took_ms == 5 + 10 + 50, "2 × 14 fit at once, 2 × 14 + 29 do not"
    bench.assert_quiet()


@story
async def test_load_that_every_request_gave_up_on_is_finished() -> None:
    """The build arrives all the same and is as good as used just now; if the load fails, no error is logged as
    unhandled.
    """
    bench = MemoryBench({"a": Cost(10, load_ms=100), "b": Cost(10, load_ms=100, failures=[ValueError()])}, budget=20)
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    for name in "ab":
        with pytest.raises(DeadlineExceeded):
            await bench.use(name, deadline_ms=10)
    await bench.pause(95)
    assert [b["idle_ms"] for b in bench.memory.snapshot()["builds"] if b["state"] == "resident"] == [
        pytest.approx(15, abs=0.1)
    ]
    gc.collect()
    assert complaints == []
    assert bench.memory.load_failures == 1
    bench.assert_quiet()
