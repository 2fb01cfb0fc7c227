"""Turns of tenants, applications and calls, and the bounds of what waits. Times are milliseconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.clock import NS_PER_S
from appliance.runtime.engine.scheduler import Limits
from appliance.runtime.engine.work import CallState, Kind, Refusal, RefusedBy
from tests.runtime.engine.driver import Driver, call, ms, option


@given(st.lists(st.tuples(st.integers(0, 2), st.none() | st.integers(1, 3)), max_size=12))
def test_calls_of_application_go_by_priority_then_deadline_then_arrival(wanted: list[tuple[int, int | None]]) -> None:
    """A call without a deadline is last."""
    bench = Driver()
    bench.put(0, "busy", call("t", 1))
    for number, (priority, left) in enumerate(wanted):
        bench.put(0.5, f"{number}", call("t", 1, None if left is None else 10_000 + left, priority=priority))
    begun = [names[0] for _, names in bench.run().started[1:]]
    order = sorted(range(len(wanted)), key=lambda at: (-wanted[at][0], wanted[at][1] or 99, at))
    assert begun == [f"{at}" for at in order]


def test_waiting_calls_are_bounded_for_each_caller_of_application_and_in_total() -> None:
    """Of eight places in all one tenant has seven."""
    bench = Driver(limits=Limits(calls_max=2, total_max=8))
    scheduler = bench.scheduler
    bench.put(0, "busy", call("z", 100))
    for number in range(3):
        bench.put(1, f"a{number}", call("a", 1, application="shared"))
        bench.put(1, f"b{number}", call("b", 1, application="shared"))
    bench.run(2)
    assert {name: one.by for name, one in bench.refused.items()} == {"a2": RefusedBy.LENGTH, "b2": RefusedBy.LENGTH}
    assert bench.refused["a2"].waiting == 2
    assert scheduler.no_place("a", "other") is None
    for number in range(6):
        bench.put(3, f"c{number}", call("c", 1, application=f"c{number}"))
    bench.run(4)
    assert isinstance(scheduler.no_place("c", "c9"), Refusal)
    assert len(scheduler) <= 8


def test_idle_workers_begin_one_call_each() -> None:
    bench = Driver(2)
    for name in "abc":
        bench.put(0, name, call("t", 10))
    assert bench.run().started == [(0, ["a"]), (0, ["b"]), (10, ["c"])]


def test_thousand_tenants_are_served_in_turns_and_forgotten_a_minute_later() -> None:
    bench = Driver()
    for turn in range(2):
        for tenant in range(1000):
            bench.put(0, f"{tenant}", call(f"t{tenant}", 1))
        assert turn in (0, 1)
    begun = [names[0] for _, names in bench.run(10_000).started]
    assert sorted(begun[:1000]) == sorted(set(begun))
    assert len(bench.scheduler.line.tenants) == 1000
    bench.now_ns += 61 * NS_PER_S
    bench.put(bench.now_ns / 1e6, "last", call("last", 1))
    bench.run(200_000)
    assert set(bench.scheduler.line.tenants) <= {"last"}


def test_calls_that_have_left_hold_no_place() -> None:
    bench = Driver(limits=Limits(calls_max=3))
    bench.put(0, "busy", call("t", 100))
    left = [bench.put(1, f"{number}", call("t", 1)) for number in range(3)]
    bench.run(2)
    for one in left:
        bench.scheduler.leave(one)
    assert len(bench.scheduler) == 0
    assert {one.state for one in left} == {CallState.ENDED}
    assert bench.scheduler.no_place("t", "t-app") is None
    bench.run()
    bench.scheduler.check_empty()


def test_items_of_tenant_go_by_latest_start_whichever_application_they_ask() -> None:
    """The long one has to begin first although its deadline is later."""
    bench = Driver()
    bench.put(0, "busy", call("t", 20))
    bench.put(1, "short", call("t", 10, 190, kind=Kind.ITEM, application="x"))
    bench.put(2, "long", call("t", 60, 200, kind=Kind.ITEM, application="y"))
    assert bench.run().started == [(0, ["busy"]), (20, ["long"]), (80, ["short"])]


def test_items_of_application_lead_another_by_no_more_than_their_band() -> None:
    """The items of `late` have later deadlines: those of `soon` have 500 ms and a run before them, no more."""
    bench = Driver()
    for number in range(80):
        bench.put(0, "soon", call("t", 20, 10_000, kind=Kind.ITEM, application="soon"))
        bench.put(0, "late", call("t", 20, 20_000, kind=Kind.ITEM, application="late"))
        assert number < 80
    begun = [names[0] for _, names in bench.run(1_500).started]
    first = begun.index("late") if "late" in begun else len(begun)
    assert 500 / 20 <= first <= 500 / 20 + 2


def test_plain_call_waits_for_items_of_its_tenant_no_longer_than_fifty_milliseconds() -> None:
    bench = Driver()
    for _ in range(40):
        bench.put(0, "item", call("t", 10, 5_000, kind=Kind.ITEM, application="items"))
    bench.put(0, "plain", call("t", 10, application="plain"))
    begun = {names[0]: at for at, names in reversed(bench.run(2_000).started)}
    assert begun["plain"] <= 50 + 2 * 10


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_run_is_charged_by_weight_of_its_tenant(weight: float) -> None:
    bench = Driver()
    bench.put(0, "a", call("a", 30, weights=(weight, 1.0)))
    bench.put(1, "b", call("b", 10))
    bench.run(5)
    line = bench.scheduler.line
    assert line.start_of("a") == pytest.approx(ms(30) / weight)
    assert not line.is_behind("b")
    assert line.is_behind("a")


def test_run_that_gets_longer_than_was_known_counts_as_long() -> None:
    """Of a guarded build the caller's values decide how long runs take: the last worker is left to others then."""
    bench = Driver(2)
    bench.put(0, "b", call("b", 1))
    bench.put(10, "a1", call("a", 5))
    late = call("a", options=(option(5),))
    bench.put(11, "busy", call("c", 60))
    bench.put(12, "a2", late)
    likely = bench.environment.likely_ns
    bench.environment.likely_ns = lambda call: ms(400) if call is late else likely(call)  # type: ignore[method-assign]
    started = dict((names[0], at) for at, names in bench.run().started)
    assert started["a2"] > 15


def test_deadlines_of_calls_that_have_ended_are_not_kept() -> None:
    """Ten thousand calls with a deadline of an hour leave a few hundred behind."""
    bench = Driver()
    refs = []
    for number in range(10_000):
        one = call("t", 1, number + 3_600_000)
        bench.put(number, "c", one)
        refs.append(one)
    bench.run(20_000)
    assert all(one.state is CallState.ENDED for one in refs)
    assert bench.scheduler.deadlines_kept <= 512
