"""Least recently used: the longest unused leave first, and no more of them than needed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.runtime.memory.room import ResidentBuild, RoomPlan, RoomProblem
from appliance.runtime.residency.fallback import least_recently_used


def plan(need: int, free: int, *resident: ResidentBuild) -> RoomPlan:
    return least_recently_used(RoomProblem(100, "new", need, free, resident))


def build(name: str, size: int, used: int, pinned: bool = False) -> ResidentBuild:
    return ResidentBuild(name, size, used, pinned)


@pytest.mark.parametrize(
    ("need", "free", "resident", "victims"),
    [
        (25, 5, [("a", 10, 3), ("b", 10, 1), ("c", 10, 2)], ("b", "c")),
        (10, 0, [("a", 10, 1, True), ("b", 10, 2)], ("b",)),
        (10, 0, [("b", 10, 1), ("a", 10, 1)], ("a",)),
        (5, 5, [("a", 10, 1)], ()),
    ],
    ids=["in the order of their last use", "not the oldest, which is in use", "of equal age by name", "it fits"],
)
def test_lru_plan_evicts_longest_unused_until_build_fits(
    need: int, free: int, resident: list[tuple[Any, ...]], victims: tuple[str, ...]
) -> None:
    assert plan(need, free, *(build(*one) for one in resident)).victims == victims


def test_lru_plan_without_enough_memory_evicts_none_and_names_missing_bytes() -> None:
    """The plan says how much would still be missing, and names no victim."""
    answer = plan(30, 5, build("a", 10, 1), build("b", 50, 2, pinned=True))
    assert answer == RoomPlan((), 0, False, "15 bytes are missing even without every unpinned build")


sizes = st.integers(0, 100)
times = st.integers(0, 5)  # few values, so that ties are common


@st.composite
def problems(draw: st.DrawFn) -> RoomProblem:
    """Up to eight builds of a few sizes and times; `free` may be negative after a size was measured anew."""
    ids = draw(st.lists(st.text("abc", min_size=1, max_size=3), unique=True, max_size=8))
    resident = tuple(ResidentBuild(i, draw(sizes), draw(times), draw(st.booleans())) for i in ids)
    return RoomProblem(10, "wanted", draw(sizes), draw(st.integers(-50, 100)), resident)


@given(problem=problems())
def test_lru_plan_evicts_unpinned_builds_once_and_only_as_needed(problem: RoomProblem) -> None:
    """Victims are unpinned and named once, and none leaves for a build that fits; the plan is insufficient only where
    all victims together would not do.
    """
    answer = least_recently_used(problem)
    by_id = {build.build_id: build for build in problem.resident}
    assert len(set(answer.victims)) == len(answer.victims)
    assert all(not by_id[victim].pinned for victim in answer.victims)
    assert answer.freed_bytes == sum(by_id[victim].bytes for victim in answer.victims)
    possible = problem.free_bytes + sum(b.bytes for b in problem.resident if not b.pinned)
    assert answer.sufficient is (possible >= problem.need_bytes)
    if answer.sufficient:
        assert problem.free_bytes + answer.freed_bytes >= problem.need_bytes
    if problem.need_bytes <= problem.free_bytes or not answer.sufficient:
        assert answer.victims == ()


@given(data=st.data(), problem=problems())
def test_lru_plan_does_not_depend_on_order_of_builds(data: st.DataObject, problem: RoomProblem) -> None:
    shuffled = tuple(data.draw(st.permutations(problem.resident)))
    other = RoomProblem(problem.now_ns, problem.build_id, problem.need_bytes, problem.free_bytes, shuffled)
    assert least_recently_used(problem) == least_recently_used(other)
