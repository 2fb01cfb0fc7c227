"""What holds for every sequence of events, and what a search over small cases finds."""

from collections import Counter
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.domain.request import FrameStanding
from appliance.domain.slots import PlannedBatch, PlannedRows, Slot
from appliance.runtime.engine.work import Call, CallState, Decision, GroupFacts, Kind, Reason, Run
from tests.runtime.engine.driver import Driver, Fixed, call, ms, option

LANES = ("l1", "l2")
LONGEST_MS = 120


@dataclass(frozen=True)
class Wanted:
    """One call of a case."""

    at_ms: int
    tenant: str
    application: str
    run_ms: int
    left_ms: int | None
    priority: int
    form: str
    group: int | None
    leaves_after_ms: int | None


WANTED = st.builds(
    Wanted,
    at_ms=st.integers(0, 60),
    tenant=st.sampled_from("abc"),
    application=st.sampled_from(("x", "y")),
    run_ms=st.sampled_from((1, 5, 10, 30, LONGEST_MS)),
    left_ms=st.none() | st.integers(1, 200),
    priority=st.integers(0, 1),
    form=st.sampled_from(("plain", "plain", "item", "item of rows", "beyond", "planned", "lane", "member", "later")),
    group=st.none() | st.integers(0, 1),
    leaves_after_ms=st.none() | st.integers(0, 20),
)
BATCHES = st.lists(
    st.tuples(st.integers(0, 80), st.sampled_from(LANES), st.sets(st.integers(0, 9), min_size=1)),
    max_size=3,
)


def made(number: int, one: Wanted, groups: int) -> Call:
    """Return the call of a wish."""
    options = tuple(
        option(one.run_ms * (1 + group), group, f"{one.application}{group}", together_max=4, at_once_max=2)
        for group in range(groups)
        if one.group in (None, group) or groups == 1
    )
    kind, slot, more = Kind.PLAIN, Slot(), {}
    match one.form:
        case "item":
            kind, more = Kind.ITEM, {"frame": FrameStanding(), "behind_ns": ms(5)}
        case "item of rows":
            kind = Kind.ITEM
        case "beyond" | "planned":
            more = {"beyond": one.form == "beyond"}
        case "lane":
            kind, slot = Kind.FRAME, Slot(lane="latency", rows=2)
        case "member":
            kind, slot = Kind.FRAME, Slot(lane=LANES[number % 2], member=("s", number), is_planned=True)
        case "later":
            slot = Slot(not_before_ns=ms(one.at_ms + 12))
    drop_ms = None if one.left_ms is None else one.at_ms + one.left_ms
    return call(
        one.tenant, None, drop_ms, application=one.application, options=options, kind=kind, slot=slot,
        priority=one.priority, **more,
    )  # fmt: skip


class Watched(Driver):
    """Checks each decision."""

    def __init__(self, groups: int, workers: int) -> None:
        super().__init__([GroupFacts(workers)] * groups, Fixed())
        self.calls: list[Call] = []
        self.ends: Counter[Call] = Counter()
        self.begun: Counter[Call] = Counter()

    def see(self, decision: Decision) -> None:
        for out in decision.outs:
            self.ends[out.call] += 1
        runs = Counter(run.group for run in self.scheduler.runs)
        assert all(runs[group] <= facts.workers for group, facts in enumerate(self.scheduler.groups))
        lanes = Counter(run.lane for run in self.scheduler.runs if run.lane == "latency")
        assert lanes["latency"] <= 1
        for run in decision.starts:
            self.began(run)
        self.conserves_work()
        assert decision.next_look_ns is None or decision.next_look_ns > self.now_ns

    def began(self, run: Run) -> None:
        assert len({one.application for one in run.calls}) == 1
        assert sum(one.rows for one in run.calls) <= max(run.option.together_max, run.calls[0].rows)
        assert abs(sum(run.charges) - run.holds_ns) <= len(run.calls) + run.holds_ns  # slow groups are charged as quick
        assert len({one.batch for one in run.calls}) == 1
        for one in run.calls:
            self.begun[one] += 1
            assert one.slot.not_before_ns <= self.now_ns
            assert one.drop_ns is None or self.now_ns + run.option.run_ns <= one.drop_ns

    def conserves_work(self) -> None:
        """An idle worker and a call that it can run: then the call is held, and the reason is one that ends."""
        idle = {
            at
            for at, one in enumerate(self.scheduler.groups)
            if one.workers > sum(r.group == at for r in self.scheduler.runs)
        }
        for one in self.calls:
            if one.state is CallState.WAITING and any(own.group in idle for own in one.options):
                assert one.held is not None
                if one.held in (Reason.AT_ONCE, Reason.LANE, Reason.BETTER_ELSEWHERE, Reason.LAST_WORKER):
                    assert self.scheduler.runs
                if one.held in (Reason.COMPANY, Reason.NOT_BEFORE):
                    assert one.held_until_ns > self.now_ns


@settings(max_examples=150, deadline=None)
@given(st.lists(WANTED, min_size=1, max_size=12), BATCHES, st.integers(1, 2), st.integers(1, 2))
def test_every_call_ends_once_and_every_hold_has_reason(
    wanted: list[Wanted], batches: list[tuple[int, str, set[int]]], groups: int, workers: int
) -> None:
    bench = Watched(groups, workers)
    scheduler = bench.scheduler
    decide = scheduler.decide

    def watched(now_ns: int) -> Decision:
        decision = decide(now_ns)
        bench.see(decision)
        return decision

    scheduler.decide = watched  # type: ignore[method-assign]
    taken: set[int] = set()
    for lane in LANES:
        planned = []
        for start_ms, own, members in batches:
            left = members - taken
            if own == lane and left:
                taken |= left
                planned.append(PlannedBatch(ms(start_ms), ms(10), ms(3), frozenset(("s", at) for at in left)))
        scheduler.plan(lane, "a", planned)
    scheduler.plan_rows({"x0": PlannedRows(3, ms(15))})
    for number, one in enumerate(wanted):
        made_call = made(number, one, groups)
        bench.calls.append(made_call)
        bench.put(one.at_ms, f"{number}", made_call)
        if one.leaves_after_ms is not None:
            bench.at(one.at_ms + one.leaves_after_ms, lambda left=made_call: scheduler.leave(left))  # type: ignore[misc]
    bench.run(10_000)
    for made_call in bench.calls:
        is_refused = made_call.reference in bench.refused
        assert (made_call.state is CallState.ENDED) is not is_refused
        assert bench.begun[made_call] + sum(made_call in run.calls for run in bench.direct) <= 1
        assert bench.ends[made_call] <= 1
    scheduler.check_empty()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from((2, 5, 10, 20)), min_size=4, max_size=4),
    st.sampled_from((1.0, 2.0, 3.0)),
    st.integers(1, 3),
)
def test_tenants_that_always_wait_get_time_by_weight(runs_ms: list[int], weight: float, workers: int) -> None:
    """Start-time fair queueing: Goyal, Vin and Cheng, theorem 1, for several servers."""
    bench = Driver(workers)
    used = Counter[str]()
    weights = {"a": 1.0, "b": weight}
    longest = max(runs_ms)
    for tenant, some in (("a", runs_ms[:2]), ("b", runs_ms[2:])):
        for number in range(600):
            bench.put(0, tenant, call(tenant, some[number % 2], weights=(weights[tenant], 1.0)))
    end_ms = 400
    bench.on_end = lambda run: used.update({run.calls[0].tenant: run.holds_ns})
    bench.run(end_ms)
    difference = abs(used["a"] / weights["a"] - used["b"] / weights["b"])
    assert difference <= (workers + 1) * ms(longest) * (1 / weights["a"] + 1 / weights["b"])


@settings(max_examples=100, deadline=None)
@given(st.lists(WANTED, min_size=1, max_size=5), st.integers(1, 2))
def test_first_start_is_first_in_order_of_calls_that_nothing_holds(wanted: list[Wanted], groups: int) -> None:
    """All plain calls come at once: the first to begin has no other before it in its tenant by priority and deadline,
    among calls that a worker could have run in time.
    """
    bench = Driver([GroupFacts(1)] * groups)
    calls = []
    for group in range(groups):
        bench.put(0, "z", call("z", options=(option(1, group, f"z{group}"),)))
    for number, one in enumerate(wanted):
        plain = Wanted(0, "a", "x", one.run_ms, one.left_ms, one.priority, "plain", None, None)
        calls.append(made(number, plain, groups))
        bench.put(0.5, f"{number}", calls[-1])
    bench.run(10_000)
    starts = [names[0] for at, names in bench.started if names[0] != "z"]
    if not starts:
        return
    first = next(one for one in calls if one.reference == starts[0])
    forever = 1 << 62
    could = [
        one
        for one in calls
        if one.reference not in bench.refused
        and (one.drop_ns is None or ms(1) + min(own.run_ns or 0 for own in one.options) <= one.drop_ns)
    ]
    assert min((-one.priority, forever if one.drop_ns is None else one.drop_ns) for one in could) == (
        -first.priority,
        forever if first.drop_ns is None else first.drop_ns,
    )
