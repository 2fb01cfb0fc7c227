"""Planned batches and lanes of plans. Times are milliseconds; a run takes 40 whatever its frames, its grace is 4."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from appliance.domain.slots import PlannedBatch, Slot
from appliance.runtime.engine.work import Call, Kind
from tests.runtime.engine.driver import Driver, Fixed, call, ms, option

RUN, GRACE = 40, 4
LANE = "lane"


def batch(start_ms: float, *names: str) -> PlannedBatch:
    return PlannedBatch(ms(start_ms), ms(RUN), ms(GRACE), frozenset((name, 7) for name in names))


class Pool:
    """A lane with planned batches, on four workers."""

    def __init__(self, *batches: PlannedBatch) -> None:
        self.bench = Driver(4)
        self.lanes = self.bench.scheduler.lanes
        self.calls: dict[str, Call] = {}
        self.plan(*batches)
        self.bench.on_end = lambda run: [self.bench.scheduler.absent(one.slot.member) for one in run.calls]  # type: ignore[func-returns-value, assignment, arg-type]

    def plan(self, *batches: PlannedBatch) -> None:
        self.bench.scheduler.plan(LANE, "t", batches)

    def comes(self, name: str, at_ms: float, variant: str = "") -> None:
        """A frame of that name comes."""
        slot = Slot(LANE, (name, 7), is_planned=True)
        options = (option(RUN, together_max=8),)
        self.calls[name] = call("t", kind=Kind.FRAME, slot=slot, options=options, variant=variant)
        self.bench.put(at_ms, name, self.calls[name])

    def starts(self, **comes_ms: float) -> dict[float, str]:
        """Return which frames begin together, by the time, after these have come."""
        for name, at_ms in comes_ms.items():
            self.comes(name, at_ms)
        return {at: "".join(sorted(names)) for at, names in self.bench.run().started}

    def counts(self) -> tuple[int, int, int]:
        found = self.lanes.counts(LANE)
        return found.full, found.short, found.late


def test_batch_begins_when_all_its_frames_are_in() -> None:
    """Before its planned start, too (AR-19)."""
    pool = Pool(batch(50, "a", "b"))
    assert pool.starts(a=5, b=20) == {20: "ab"}
    assert pool.counts() == (1, 0, 0)


def test_batch_waits_for_late_frame_within_grace_only() -> None:
    """Late by 5 % of the run: in its batch; by 20 %: not (AR-18)."""
    pool = Pool(batch(50, "a", "b"), batch(100, "c", "d"))
    assert pool.starts(a=40, b=52, c=90, d=108) == {52: "ab", 104: "c", 108: "d"}
    assert pool.counts() == (1, 1, 0)


def test_batch_with_missing_frame_waits_for_run_before_it() -> None:
    """A full batch begins on another worker meanwhile."""
    pool = Pool(batch(10, "a"), batch(50, "b", "c"), batch(90, "d", "e"))
    assert pool.starts(a=30, b=45, c=60, d=89, e=200) == {30: "a", 60: "bc", 100: "d", 200: "e"}
    assert pool.counts() == (2, 1, 3)


def test_batch_waits_for_overdue_run_before_it_within_grace_only() -> None:
    pool = Pool(batch(10, "a"), batch(50, "b", "c"))
    pool.bench.takes_ms["a"] = 90
    assert pool.starts(a=30, b=45) == {30: "a", 74: "b"}


def test_frame_that_missed_its_batch_joins_next_batch_that_has_room() -> None:
    """A run of its own would put the next batch off by more than that grows by the frame. One frame has room."""
    pool = Pool(batch(10, "a", "b"), replace(batch(52, "c", "d"), variant="v", larger_ns=ms(47)))
    pool.comes("b", 20, "v")
    pool.comes("f", 25, "v")
    pool.bench.at(45, lambda: joined.append(pool.lanes.batch_of(("c", 7))))
    joined: list[PlannedBatch | None] = []
    assert pool.starts(a=5, c=50, d=54) == {14: "a", 25: "f", 54: "bcd"}
    assert joined[0] is not None
    assert (len(joined[0].members), joined[0].run_ns) == (3, ms(47))


def test_frame_joins_batch_of_same_variant_only_and_only_where_its_own_run_would_delay_that() -> None:
    pool = Pool(replace(batch(50, "a"), variant="v", larger_ns=ms(RUN)))
    pool.comes("early", 5, "v")
    pool.comes("other", 20, "w")
    pool.comes("late", 25, "v")
    assert pool.starts() == {5: "early", 20: "other", 60: "late"}, "after the run before it"


@pytest.mark.parametrize(
    ("happens", "starts_ms"),
    [
        pytest.param(lambda pool: pool.plan(batch(70, "a", "b")), 74, id="its start was put off"),
        pytest.param(lambda pool: pool.plan(batch(50, "a")), 54, id="the other device left"),
        pytest.param(lambda pool: pool.bench.scheduler.absent(("b", 7)), 20, id="the other frame was lost"),
        pytest.param(lambda pool: pool.plan(), 54, id="it is planned no more"),
    ],
)
def test_waiting_frame_begins_as_its_batch_is_planned_then(happens: Callable[[Pool], None], starts_ms: float) -> None:
    """A frame that waits in a batch which a new plan changes goes when the old plan said."""
    pool = Pool(batch(50, "a", "b"))
    pool.bench.at(20, lambda: happens(pool))
    assert pool.starts(a=10) == {starts_ms: "a"}


def test_new_plan_keeps_frames_that_wait_and_batches_that_have_begun() -> None:
    """The tail of the old plan is the head of the new one (AR-17)."""
    kept, gone, begun = batch(50, "a", "b"), batch(60, "c", "d"), batch(5, "e")
    pool = Pool(begun, kept, gone)
    pool.bench.at(20, lambda: pool.plan(begun, kept))
    assert pool.starts(e=5, a=10, c=10, b=35) == {5: "e", 35: "ab", 75: "c"}
    assert not pool.lanes.has_reserved


def test_batch_does_not_wait_for_frame_that_waits_in_another() -> None:
    pool = Pool(batch(50, "a", "b"))
    pool.bench.at(20, lambda: pool.plan(batch(60, "a", "c")))
    assert pool.starts(a=10, c=25) == {25: "c", 65: "a"}


def test_frame_that_leaves_leaves_no_batch_behind() -> None:
    """The frame's deadline came, at a batch that is planned no more: that batch never begins, for it has no frames."""
    pool = Pool(batch(50, "a", "b"))
    pool.bench.at(20, pool.plan)
    pool.bench.at(22, lambda: pool.bench.scheduler.leave(pool.calls["a"]))
    assert pool.starts(a=10) == {}
    assert (pool.lanes.free_ns(LANE), pool.counts(), pool.lanes.has_reserved) == (0, (0, 0, 0), False)


def test_planned_batch_is_to_begin_until_it_is_due_or_its_grace_ends() -> None:
    pool = Pool(batch(10, "a"), batch(50, "b", "c"), batch(90, "d"))
    assert [pool.lanes.beginning(LANE, 0, ms(at)) for at in (10, 11, 50, 51, 91)] == [0, 1, 1, 2, 3]
    pool.comes("a", 5)
    pool.bench.run(6)
    assert pool.lanes.beginning(LANE, ms(6), ms(91)) == 2
    pool.bench.run(54)
    assert pool.lanes.beginning(LANE, ms(54), ms(91)) == 2
    assert pool.lanes.beginning(LANE, ms(55), ms(91)) == 1


def test_frames_of_run_belong_to_their_batch_until_they_are_answered() -> None:
    """Planners count on results that are being written."""
    pool = Pool(batch(10, "a", "b"))
    pool.bench.on_end = lambda run: None
    pool.starts(a=5, b=8)
    (begun,) = pool.lanes.begun(LANE)
    assert (begun.start_ns, begun.end_ns, len(begun.members)) == (ms(8), ms(48), 2)
    pool.bench.scheduler.absent(("a", 7))
    assert [len(one.members) for one in pool.lanes.begun(LANE)] == [1]
    pool.bench.scheduler.absent(("b", 7))
    assert pool.lanes.begun(LANE) == []


def test_call_beside_reserved_start_is_weighed_alone() -> None:
    """The calls that wait already were weighed in vain, and nothing else is new: a put costs the same however many
    wait. A call that ends before the start begins at once all the same.
    """
    bench = Driver(1)
    bench.scheduler.plan(LANE, "t", [batch(35, "a")])
    weighed: list[Call] = []
    bench.environment.likely_ns = lambda call: weighed.append(call) or call.likely_ns  # type: ignore[func-returns-value, method-assign]
    for number in range(60):
        bench.put(0, f"{number}", call("u", 40))
    bench.put(1, "short", call("u", 5))
    assert bench.run(2).started == [(1, ["short"])]
    assert len(weighed) == 61, "each once"


def lane_of(*comes: tuple[str, float, float], rows: int = 4, by_rows: dict[int, float]) -> dict[float, str]:
    """Return which frames of a lane begin together: (name, when it comes, deadline), beside three other workers."""
    bench = Driver(4, Fixed(lambda count: by_rows[min(one for one in by_rows if one >= count)]))
    for name, at_ms, drop_ms in comes:
        options = (option(by_rows[1], together_max=max(by_rows)),)
        slot = Slot("worker", rows=rows, is_planned=True)
        bench.put(at_ms, name, call("t", None, drop_ms, options=options, kind=Kind.FRAME, slot=slot))
    return {at: "".join(sorted(names)) for at, names in bench.run().started}


GAINS = {1: 20.0, 2: 25.0, 4: 30.0}


def test_frames_that_came_during_run_of_lane_go_together_after_it() -> None:
    """Jellyfish, section IV-A."""
    assert lane_of(("a", 0, 500), ("b", 5, 500), ("c", 8, 500), by_rows=GAINS) == {0: "a", 20: "bc"}


def test_frames_of_lane_go_one_by_one_where_larger_runs_gain_nothing() -> None:
    assert lane_of(("a", 0, 500), ("b", 5, 500), ("c", 8, 500), by_rows={1: 20, 2: 45, 4: 90}) == {
        0: "a",
        20: "b",
        40: "c",
    }


def test_run_of_lane_takes_no_more_frames_than_planned() -> None:
    comes = [(name, 1, 500.0) for name in "bcde"]
    assert lane_of(("a", 0, 500), *comes, rows=2, by_rows=GAINS) == {0: "a", 20: "bc", 45: "de"}
    assert lane_of(("a", 0, 500), *comes, rows=4, by_rows=GAINS) == {0: "a", 20: "bcde"}


def test_run_of_lane_exceeds_planned_batch_where_frames_would_be_late() -> None:
    """The last two would end at 70 in runs of two, and end at 50 in one of four."""
    comes = [(name, 1, 60.0) for name in "bcde"]
    assert lane_of(("a", 0, 60), *comes, rows=2, by_rows=GAINS) == {0: "a", 20: "bcde"}


def test_lane_serves_earliest_deadline_first_and_drops_hopeless_frame() -> None:
    one_by_one = {1: 20.0}
    comes = (("a", 0, 500.0), ("b", 1, 300.0), ("c", 2, 35.0), ("d", 3, 100.0))
    assert lane_of(*comes, by_rows=one_by_one) == {0: "a", 20: "d", 40: "b"}


def test_lanes_do_not_wait_for_one_another() -> None:
    bench = Driver(3)
    for name, lane in (("a", "l1"), ("b", "l2"), ("c", "l1")):
        bench.put(0, name, call("t", 20, kind=Kind.FRAME, slot=Slot(lane, is_planned=True)))
    assert bench.run().started == [(0, ["a"]), (0, ["b"]), (20, ["c"])]
