"""The backlog, beside fair queueing itself, and its rate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.clock import NS_PER_MS
from appliance.runtime.engine.backlog import Backlog
from appliance.runtime.engine.fairness import FairLine, Flow

ALIKE = (1.0, 1.0)


def test_backlog_of_a_lone_tenant_is_its_own_work() -> None:
    """One worker does the waiting work, then the new work; two workers do it in half the time. Of two applications at
    1 : 1, of which the other has much waiting, 100 behind 100 of its own end after 300.
    """
    for workers, expected_ns in ((1, 400), (2, 200)):
        backlog = Backlog(workers)
        backlog.add("t", "a", 300, ALIKE)
        assert backlog.end_ns("t", "a", 100, ALIKE) == expected_ns
    backlog = Backlog(1)
    backlog.add("t", "busy", 10**6, ALIKE)
    backlog.add("t", "calm", 100, ALIKE)
    assert backlog.end_ns("t", "calm", 100, ALIKE) == 300
    assert backlog.end_ns("t", "busy", 100, ALIKE, ahead_ns=0) == 100


def test_backlog_of_another_tenant_counts_by_its_share_only() -> None:
    """Beside an hour of another tenant's work, by hand. An idle tenant is next: 100 of its own end after 100. Behind
    100 that it has waiting, 100 of the other's are done at weights 1 : 1, 33 at 3 : 1; a backlog of 50 adds no more
    than 50. A tenant that is 60 ahead waits for 60 of the other's.
    """
    backlog = Backlog(1)
    backlog.add("flood", "a", 10**9, (1.0, 1.0))
    assert backlog.end_ns("quiet", "b", 100, (1.0, 1.0)) == 100
    assert backlog.end_ns("quiet", "b", 100, (1.0, 1.0), lead_ns=60) == 160
    backlog.add("quiet", "b", 100, (1.0, 1.0))
    assert backlog.end_ns("quiet", "b", 100, (1.0, 1.0)) == 300
    assert backlog.end_ns("quiet", "b", 100, (3.0, 1.0)) == 233
    backlog.remove("flood", "a", 10**9)
    backlog.add("flood", "a", 50, (3.0, 1.0))
    assert backlog.end_ns("quiet", "b", 100, (1.0, 1.0)) == 250


@given(
    waiting=st.lists(st.tuples(st.sampled_from("tu"), st.sampled_from("ab"), st.integers(1, 10**9)), max_size=6),
    rests_ns=st.lists(st.integers(1, 10**9), max_size=4),
    work_ns=st.integers(1, 10**9),
    lead_ns=st.floats(0, 1e9),
    weights=st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)),
)
def test_backlog_end_is_never_after_all_waiting_and_running_work(
    waiting: list[tuple[str, str, int]],
    rests_ns: list[int],
    work_ns: int,
    lead_ns: float,
    weights: tuple[float, float],
) -> None:
    """But for rounding, for every tenant, lead and weight."""
    backlog = Backlog(2)
    for tenant, application, ns in waiting:
        backlog.add(tenant, application, ns, weights)
    end_ns = backlog.end_ns("t", "a", work_ns, weights, lead_ns=lead_ns, rests_ns=rests_ns)
    assert end_ns <= backlog.most_ns(work_ns, rests_ns) + 1


def test_backlog_counts_runs_under_way_on_their_workers() -> None:
    """By hand. One worker that is taken for 50: 100 end after 150, behind 30 after 180. Of two workers the one that is
    free first takes the work, and both where there is enough to do; a worker without a run is free now.
    """
    backlog = Backlog(1)
    assert backlog.end_ns("t", "a", 100, ALIKE, rests_ns=[50]) == 150
    backlog.add("t", "a", 30, ALIKE)
    assert backlog.end_ns("t", "a", 100, ALIKE, rests_ns=[50]) == 180
    pair = Backlog(2)
    assert pair.end_ns("t", "a", 100, ALIKE, rests_ns=[50, 1000]) == 150
    assert pair.end_ns("t", "a", 100, ALIKE, rests_ns=[50, 70]) == 110
    assert pair.end_ns("t", "a", 40, ALIKE, rests_ns=[50]) == 40


def done(backlog: Backlog, expected_ms: int, took_ms: int, every_ms: int, from_ms: int = 0) -> None:
    """A hundred runs end."""
    for turn in range(100):
        backlog.done(expected_ms * NS_PER_MS, took_ms * NS_PER_MS, (from_ms + turn * every_ms) * NS_PER_MS)


def test_backlog_rate_follows_the_runs_that_were_seen() -> None:
    """Runs of 10 ms by their profile, of which one ends every 40 ms while others wait: waiting work takes four times as
    long as its profile says. Without anything waiting nothing is learned; where runs end and nothing waits behind them
    the processor keeps up again.
    """
    backlog = Backlog(1)
    done(backlog, 10, 40, every_ms=400)
    backlog.add("t", "a", 100, ALIKE)
    assert backlog.end_ns("t", "a", 100, ALIKE) == 200
    done(backlog, 10, 40, every_ms=40)
    assert backlog.end_ns("t", "a", 100, ALIKE) == pytest.approx(800, rel=0.05)
    backlog.remove("t", "a", 100)
    done(backlog, 10, 10, every_ms=40, from_ms=5000)
    assert backlog.end_ns("t", "a", 10_000, ALIKE) == pytest.approx(10_000, rel=0.01)


def test_backlog_rate_ignores_requests_whose_body_is_still_being_sent() -> None:
    """One body comes for a minute while a run of 1 ms ends now and then: nothing could have run meanwhile."""
    backlog = Backlog(2)
    backlog.add("sender", "a", 100, ALIKE, is_ready=False)
    for turn in range(240):
        backlog.done(NS_PER_MS, NS_PER_MS, turn * 250 * NS_PER_MS)
    assert backlog.end_ns("other", "b", 300, ALIKE) == 150
    backlog.remove("sender", "a", 100, is_ready=False)
    assert backlog.work_ns == 0


def test_backlog_rate_slows_at_most_fourfold_by_overrunning_runs() -> None:
    """Two workers are kept busy by runs of 2 s that were expected to take 10 ms, by whatever values they were given:
    other tenants are expected to wait no more than four times as long.
    """
    backlog = Backlog(2)
    backlog.add("flood", "a", 10 * NS_PER_MS, ALIKE)
    done(backlog, 10, 2000, every_ms=1000)
    assert backlog.end_ns("other", "b", 10 * NS_PER_MS, ALIKE) <= 4 * 10 * NS_PER_MS * 1.01


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20)), min_size=1, max_size=40),
    st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=4, max_size=4),
    st.integers(0, 3),
)
def test_backlog_end_agrees_with_fair_queueing(
    waiting: list[tuple[int, int]], weights: list[float], asker: int
) -> None:
    """One more job of 10 against the queue played to its end: the backlog's answer is too little by at most a run for
    each tenant, the one that it begins just before.
    """
    backlog = Backlog(1)
    jobs: dict[int, list[int]] = {}
    for tenant, work in waiting:
        backlog.add(str(tenant), "a", work, (weights[tenant], 1.0))
        jobs.setdefault(tenant, []).append(work)
    told = backlog.end_ns(str(asker), "a", 10, (weights[asker], 1.0))
    jobs.setdefault(asker, []).append(10)
    assert -1 <= played(jobs, weights, asker) - told <= 20 * len(jobs)


def played(jobs: dict[int, list[int]], weights: list[float], asker: int) -> int:
    """When the last job of the asker ends."""
    line: FairLine[Flow] = FairLine()
    flows = {tenant: Flow() for tenant in jobs}
    for flow in flows.values():
        line.put(flow)
    now = 0
    while jobs[asker]:
        first = line.first()
        tenant = next(tenant for tenant, flow in flows.items() if flow is first)
        assert first is not None
        work = jobs[tenant].pop(0)
        line.begin(first, work, weights[tenant])
        now += work
        line.end(first, 0, weights[tenant])
        if not jobs[tenant]:
            line.drop(first)
    return now
