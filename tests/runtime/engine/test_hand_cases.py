"""Cases worked out by hand. Times are milliseconds; a run takes what is expected of it; weights are 1; one worker
unless the case says otherwise.
"""

import pytest

from appliance.domain.request import FrameStanding
from appliance.domain.slots import PlannedBatch, PlannedRows, Slot
from appliance.runtime.engine.work import Call, GroupFacts, Kind, Option, RefusedBy, Why
from tests.runtime.engine.driver import Driver, Fixed, LeastEnd, call, ms, option


def batch(start_ms: float, *members: str, grace_ms: float = 1, run_ms: float = 10) -> PlannedBatch:
    return PlannedBatch(ms(start_ms), ms(run_ms), ms(grace_ms), frozenset((name, 0) for name in members))


def frame(member: str, tenant: str = "a", options: tuple[Option, ...] = ()) -> Call:
    return call(tenant, options=options, kind=Kind.FRAME, slot=Slot(lane="lane", member=(member, 0), is_planned=True))


def test_tenants_alternate_after_first_run() -> None:
    bench = Driver()
    for name in ("a1", "a2", "a3"):
        bench.put(0, name, call("a"))
    bench.put(1, "b1", call("b"))
    assert bench.run().started == [(0, ["a1"]), (10, ["b1"]), (20, ["a2"]), (30, ["a3"])]


def test_tenants_share_time_by_weight() -> None:
    bench = Driver()
    for number in range(3):
        bench.put(0, f"a{number}", call("a", 12, weights=(1.0, 1.0)))
    for number in range(8):
        bench.put(0.001, f"b{number}", call("b", 12, weights=(3.0, 1.0)))
    tenants = [names[0][0] for _, names in bench.run(90).started]
    assert tenants == list("abbbabbb")


def test_calls_of_tenant_go_by_priority_then_deadline() -> None:
    bench = Driver()
    bench.put(0, "busy", call("t"))
    bench.put(1, "x", call("t", 10, 100))
    bench.put(1, "y", call("t", 10, 40))
    bench.put(1, "z", call("t", 10, 200, priority=1))
    assert bench.run().started == [(0, ["busy"]), (10, ["z"]), (20, ["y"]), (30, ["x"])]


def test_call_that_would_end_too_late_is_refused_with_figures() -> None:
    bench = Driver()
    bench.put(0, "busy", call("t"))
    bench.put(1, "y", call("t", 10, 15))
    refusal = bench.run().refused["y"]
    assert refusal.by is RefusedBy.WAIT
    assert (refusal.expected_ns, refusal.allowed_ns, refusal.retry_after_ns) == (ms(19), ms(12.6), ms(6.4))


def test_item_that_would_be_late_at_its_turn_leaves_worker_to_next() -> None:
    bench = Driver()
    bench.put(0, "busy", call("t"))
    bench.put(1, "y", call("t", 10, 15, kind=Kind.ITEM))
    bench.put(1, "x", call("t", 10, 100))
    bench.run()
    assert bench.outs == [(10, "y", Why.LATE)]
    assert bench.started == [(0, ["busy"]), (10, ["x"])]


def test_short_call_fits_before_reserved_start_and_long_one_waits() -> None:
    bench = Driver()
    bench.scheduler.plan("lane", "a", [batch(30, "m")])
    bench.put(0, "b", call("b", 40))
    bench.put(0, "c", call("b", 20))
    bench.put(25, "m", frame("m"))
    assert bench.run().started == [(0, ["c"]), (25, ["m"]), (35, ["b"])]


def test_reserved_start_lapses_when_no_frame_comes() -> None:
    bench = Driver()
    bench.scheduler.plan("lane", "a", [batch(30, "m")])
    bench.put(0, "b", call("b", 40))
    bench.put(0, "c", call("b", 20))
    assert bench.run().started == [(0, ["c"]), (32, ["b"])]


@pytest.mark.parametrize(
    ("arrivals", "drop_ms", "starts"),
    [((0, 5, 8, 12), None, [(12, 4)]), ((0, 5, 8), None, [(20, 3)]), ((0, 5, 8), 30, [(17, 3)])],
)
def test_items_wait_for_planned_rows_until_first_is_due(
    arrivals: tuple[int, ...], drop_ms: float | None, starts: list[tuple[float, int]]
) -> None:
    """The plan wants 4 rows or 20 ms; with the deadline the first item has to begin at 30 - 8 - 4 - 1."""
    bench = Driver(times=Fixed(lambda rows: 8 if rows > 1 else 4))
    bench.scheduler.plan_rows({"b": PlannedRows(4, ms(20), ms(4))})
    for number, at in enumerate(arrivals):
        item = call("t", None, drop_ms, kind=Kind.ITEM, options=(option(4, together_max=4),))
        bench.put(at, f"i{number}", item)
    assert [(at, len(names)) for at, names in bench.run().started] == starts


def test_lane_runs_one_at_a_time_and_takes_what_waits() -> None:
    bench = Driver(2, Fixed(lambda rows: 10 if rows == 1 else 12))
    lane = (option(10, together_max=2),)
    for name, at in (("f1", 0), ("f2", 3), ("f3", 5)):
        bench.put(at, name, call("t", options=lane, kind=Kind.FRAME, drop_ms=500, slot=Slot(lane="l", rows=2)))
    bench.put(4, "p", call("u", 10, options=(option(10, build="other"),)))
    assert bench.run().started == [(0, ["f1"]), (4, ["p"]), (10, ["f2", "f3"])]


@pytest.mark.parametrize(
    ("second_ms", "busy_ms", "took_ms", "starts"),
    [
        (20, None, None, [(20, ["m1", "m2"])]),
        (40, None, None, [(32, ["m1"]), (42, ["m2"])]),
        (40, 36, None, [(36, ["m1"])]),
        (40, 36, 50, [(38, ["m1"])]),
    ],
)
def test_planned_batch_begins_when_full_or_after_grace_and_its_lane(
    second_ms: float, busy_ms: float | None, took_ms: float | None, starts: list[tuple[float, list[str]]]
) -> None:
    bench = Driver(2 if busy_ms else 1)
    both = (option(10, together_max=4),)
    planned = batch(30, "m1", "m2", grace_ms=2)
    bench.scheduler.plan("lane", "a", [batch(0, "m0", run_ms=36), planned] if busy_ms else [planned])
    if busy_ms:
        bench.put(0, "m0", frame("m0", options=(option(busy_ms),)))
        bench.takes_ms["m0"] = took_ms or busy_ms
    bench.put(10, "m1", frame("m1", options=both))
    bench.put(second_ms, "m2", frame("m2", options=both))
    started = [one for one in bench.run().started if one[1] != ["m0"]]
    assert started[: len(starts)] == starts


def test_work_beyond_plan_goes_after_planned_work_of_others() -> None:
    bench = Driver()
    bench.put(0, "busy", call("c", 10))
    bench.put(1, "a", call("a", beyond=True))
    bench.put(2, "b", call("b", beyond=False))
    assert bench.run().started == [(0, ["busy"]), (10, ["b"]), (20, ["a"])]


def test_work_beyond_plan_does_not_wait_for_planned_work_that_is_held() -> None:
    bench = Driver()
    bench.put(0, "busy", call("c", 10))
    bench.put(1, "a", call("a", 5, beyond=True))
    bench.scheduler.plan_rows({"b-net": PlannedRows(4, ms(5))})
    bench.put(2, "b", call("b", beyond=False, kind=Kind.ITEM))
    assert bench.run().started == [(0, ["busy"]), (10, ["a"]), (15, ["b"])]


def test_items_of_lost_frame_go_last_and_end_when_they_are_late() -> None:
    bench = Driver()
    bench.put(0, "busy", call("t", 35))
    lost, kept = FrameStanding(), FrameStanding()
    for name, behind, frame, drop in (("i1", 10, lost, 50), ("i2", 0, lost, 50), ("h", 0, kept, 60)):
        bench.put(1, name, call("t", 10, drop, kind=Kind.ITEM, frame=frame, behind_ns=ms(behind)))
    bench.run()
    assert bench.started == [(0, ["busy"]), (35, ["h"])]
    assert bench.outs == [(45, "i1", Why.LATE), (45, "i2", Why.LATE)]


def test_earliest_finish_waits_for_fast_group_where_that_ends_sooner() -> None:
    bench = Driver([GroupFacts(1), GroupFacts(1)], placement=LeastEnd())
    bench.put(0, "busy", call("z", 8, options=(option(8, 0),)))
    for name in "xyz":
        bench.put(0, name, call("t", options=(option(10, 0), option(30, 1)), drop_ms=100))
    assert sorted(bench.run().started) == [(0, ["busy"]), (0, ["z"]), (8, ["x"]), (18, ["y"])]


def test_long_run_leaves_last_worker_to_tenant_that_used_less() -> None:
    bench = Driver(2)
    bench.put(0, "b0", call("b", 1))
    bench.put(10, "a1", call("a", 80))
    bench.put(11, "a2", call("a", 80))
    bench.put(30, "b", call("b", 10))
    started = bench.run().started
    assert (30, ["b"]) in started
    assert (90, ["a2"]) in started


def test_calls_whose_build_is_lost_are_placed_anew() -> None:
    bench = Driver([GroupFacts(1), GroupFacts(1)])
    bench.put(0, "c", call("c", options=(option(9, 0, "c0"),)))
    bench.put(0, "w", call("t", options=(option(30, 1, "w1"),)))
    bench.put(1, "x", call("t", options=(option(10, 1, "x1"),)))
    bench.put(1, "y", call("t", options=(option(10, 1, "y1"), option(10, 0, "y0"))))

    def lose() -> None:
        bench.environment.lost |= {"w1", "x1", "y1"}
        bench.scheduler.facts([GroupFacts(1), GroupFacts(1, takes_runs=False)])

    bench.at(5, lose)
    bench.run()
    assert bench.outs == [(9, "x", Why.REPLACE)]
    assert (9, ["y"]) in bench.started


def test_batch_waits_no_longer_for_frame_whose_caller_left() -> None:
    bench = Driver()
    bench.scheduler.plan("lane", "a", [batch(30, "m1", "m2", grace_ms=2)])
    bench.put(10, "m1", frame("m1"))
    bench.at(15, lambda: bench.scheduler.absent(("m2", 0)))
    assert bench.run().started == [(15, ["m1"])]


def test_short_call_begins_on_last_worker_that_long_call_of_its_tenant_leaves() -> None:
    """The queue that serves today looks at the first call of an application only, and leaves the worker idle."""
    bench = Driver(3)
    bench.put(0, "b", call("b", 80))
    bench.put(12, "c1", call("c", 3))
    bench.put(16, "c2", call("c", 80))
    bench.put(54, "c3", call("c", 80))
    bench.put(55, "c4", call("c", 3))
    assert bench.run().started == [(0, ["b"]), (12, ["c1"]), (16, ["c2"]), (55, ["c4"]), (80, ["c3"])]
