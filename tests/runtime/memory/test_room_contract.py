"""Every eviction policy in the registry keeps the family's contract."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.runtime.memory.room import ResidentBuild, RoomProblem
from tests.fakes.never_evict import ROOM_POLICIES

every_policy = pytest.mark.parametrize("name", sorted(ROOM_POLICIES))

sizes = st.integers(0, 100)
times = st.integers(0, 5)  # few values, so that ties are common


@st.composite
def problems(draw: st.DrawFn) -> RoomProblem:
    """Up to eight builds of a few sizes and times; `free` may be negative after a size was measured anew."""
    ids = draw(st.lists(st.text("abc", min_size=1, max_size=3), unique=True, max_size=8))
    resident = tuple(ResidentBuild(i, draw(sizes), draw(times), draw(st.booleans()), ("t/a",)) for i in ids)
    return RoomProblem(10, "wanted", draw(sizes), draw(st.integers(-50, 100)), resident)


@every_policy
@given(problem=problems())
def test_plan_is_honest(name: str, problem: RoomProblem) -> None:
    """Victims are resident, unpinned and named once; `freed_bytes` is their sum; a sufficient plan frees enough, another has no victims."""
    plan = ROOM_POLICIES[name]().plan(problem)
    by_id = {build.build_id: build for build in problem.resident}
    assert len(set(plan.victims)) == len(plan.victims)
    assert all(not by_id[victim].pinned for victim in plan.victims)
    assert plan.freed_bytes == sum(by_id[victim].bytes for victim in plan.victims)
    assert plan.reason
    if plan.sufficient:
        assert problem.free_bytes + plan.freed_bytes >= problem.need_bytes
    else:
        assert plan.victims == ()


@every_policy
@given(problem=problems())
def test_nothing_leaves_without_need(name: str, problem: RoomProblem) -> None:
    """What fits already costs nobody their place."""
    if problem.need_bytes <= problem.free_bytes:
        plan = ROOM_POLICIES[name]().plan(problem)
        assert (plan.victims, plan.sufficient) == ((), True)


@every_policy
@given(data=st.data(), problem=problems())
def test_order_of_input_does_not_matter(name: str, data: st.DataObject, problem: RoomProblem) -> None:
    """The same builds in any order give the same plan, and asking twice gives it twice."""
    shuffled = tuple(data.draw(st.permutations(problem.resident)))
    other = RoomProblem(problem.now_ns, problem.build_id, problem.need_bytes, problem.free_bytes, shuffled)
    policy = ROOM_POLICIES[name]()
    assert policy.plan(problem) == policy.plan(other) == policy.plan(problem)


@pytest.mark.parametrize("name", sorted(set(ROOM_POLICIES) - {"none"}))
@given(problem=problems())
def test_says_no_only_when_it_must(name: str, problem: RoomProblem) -> None:
    """Insufficient means that even every unpinned build together would not do. (`none` is the policy that never tries.)"""
    possible = problem.free_bytes + sum(build.bytes for build in problem.resident if not build.pinned)
    assert ROOM_POLICIES[name]().plan(problem).sufficient is (possible >= problem.need_bytes)
