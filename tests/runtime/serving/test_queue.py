"""The queue: most urgent first, bounded, and nothing late or abandoned is handed out."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.clock import NS_PER_MS, NS_PER_S, NS_PER_US
from appliance.domain.errors import DeadlineExceeded, QueueFull, ShuttingDown
from appliance.domain.states import RequestState
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.serving.job import Job
from appliance.runtime.serving.queue import Queue
from tests.fakes.clock import story
from tests.fakes.hand_clock import HandClock
from tests.runtime.serving.jobs import SERVABLE, job


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def queue(clock: HandClock) -> Queue:
    return Queue(clock, 100, 100)


def item(name: str, clock: HandClock, within_s: int, *, is_item: bool = True) -> Job:
    """A job of an application, whose run is expected to take 10 ms."""
    one = job(name, deadline_ns=clock.now_ns() + within_s * NS_PER_S, expected_ns=10 * NS_PER_MS)
    one.request.is_item = is_item
    return one


@given(
    st.lists(st.tuples(st.integers(0, 2), st.none() | st.integers(1, 3)), max_size=12),
)
@story
async def test_queue_order_is_priority_then_deadline_then_arrival(wanted: list[tuple[int, int | None]]) -> None:
    """A job without a deadline is last."""
    clock = HandClock()
    queue = Queue(clock, 100, 100)
    far_ns = clock.now_ns() + 10**12
    jobs = [job(priority=p, deadline_ns=None if d is None else far_ns + d) for p, d in wanted]
    for each in jobs:
        queue.put(each)
    ordered = sorted(
        range(len(jobs)), key=lambda i: (-wanted[i][0], 99 if wanted[i][1] is None else wanted[i][1] or 0, i)
    )
    assert [queue.take() for _ in jobs] == [jobs[i] for i in ordered]
    assert queue.take() is None
    assert len(queue) == 0


@story
async def test_queue_is_bounded_for_each_application_and_in_total() -> None:
    """Taking a job makes room."""
    queue = Queue(HandClock(), len_max=2, total_max=4)
    for _ in range(2):
        queue.put(job("a"))
    with pytest.raises(QueueFull) as caught:
        queue.put(job("a"))
    assert (caught.value.application_id, caught.value.queue_len_max) == ("a", 2)
    queue.put(job("b"))
    with pytest.raises(QueueFull):
        queue.counts.check_room("c", "t")
    assert queue.counts.lengths() == {"a": 2, "b": 1}
    queue.take()
    queue.counts.check_room("a", "t")
    assert queue.counts.lengths() == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("left_ms", "expected_ms", "late"),
    [(1, None, False), (0, None, False), (-1, None, True), (5, 5, False), (5, 6, True)],
)
@story
async def test_late_job_is_answered_and_not_handed_out(
    left_ms: int, expected_ms: int | None, late: bool, clock: HandClock, queue: Queue
) -> None:
    """A job that would end after its deadline is answered with DeadlineExceeded instead of being run."""
    expected_ns = None if expected_ms is None else expected_ms * 10**6
    each = job(deadline_ns=clock.now_ns() + left_ms * 10**6, expected_ns=expected_ns)
    queue.put(each)
    taken = queue.take()
    if late:
        assert taken is None
        assert each.state is RequestState.EXPIRED
        assert isinstance(each.answer.exception(), DeadlineExceeded)
    else:
        assert taken is each
        assert not each.answer.done()


@story
async def test_abandoned_job_is_passed_over(queue: Queue) -> None:
    """The caller has gone: the next one is handed out, and the place is free."""
    gone, there = job(), job()
    queue.put(gone)
    queue.put(there)
    gone.answer.cancel()
    assert queue.take() is there
    assert gone.state is RequestState.FAILED
    assert queue.counts.lengths() == {}


@story
async def test_idle_workers_take_one_job_each(queue: Queue) -> None:
    """At once; a worker that has withdrawn is passed over; a worker that comes late takes what waits."""
    begun: list[tuple[str, Job]] = []
    workers = [lambda each, name=name: begun.append((name, each)) for name in "abc"]
    for worker in workers:
        queue.offer(worker)
    queue.withdraw(workers[0])
    queue.withdraw(workers[0])
    jobs = [job() for _ in range(3)]
    for each in jobs:
        queue.put(each)
    assert begun == [("b", jobs[0]), ("c", jobs[1])]
    queue.offer(workers[0])
    assert begun[2:] == [("a", jobs[2])]
    assert len(queue) == 0


@story
async def test_guarded_runs_leave_the_last_worker_whatever_their_profile_says(clock: HandClock, queue: Queue) -> None:
    """The caller's values decide how long they take: neither a short profile nor many short runs in between let a
    tenant take all workers while another one is active.
    """
    begun: list[Job] = []
    build, guarded = LoadedBuild("b@hostile", 1, 1), replace(SERVABLE, is_guarded=True)

    def hostile() -> Job:
        return job(tenant="hostile", expected_ns=NS_PER_US, build=build, servable=guarded)

    def end(one: Job, took_ns: int) -> None:
        one.started_ns = clock.now_ns()
        clock.pass_s(took_ns / NS_PER_S)
        one.finished_ns = clock.now_ns()
        begun.remove(one)
        queue.ended(one)
        queue.offer(begun.append)

    queue.flows.saw("quiet", clock.now_ns())
    queue.offer(begun.append)
    queue.offer(begun.append)
    for round_ in range(2):
        long, second = hostile(), hostile()
        queue.put(long)
        queue.put(second)
        assert begun == [long], round_
        quiet = job(tenant="quiet", expected_ns=NS_PER_US)
        queue.put(quiet)
        assert begun == [long, quiet]
        end(quiet, NS_PER_US)
        end(long, NS_PER_S)
        end(second, NS_PER_US)
        for _ in range(50):
            short = hostile()
            queue.put(short)
            end(short, NS_PER_US)


@story
async def test_refuse_all_answers_every_waiting_job(queue: Queue) -> None:
    """The queue is empty and usable then."""
    waiting, gone = job(), job()
    queue.put(waiting)
    queue.put(gone)
    gone.answer.cancel()
    queue.refuse_all()
    assert isinstance(waiting.answer.exception(), ShuttingDown)
    assert (waiting.state, gone.state) == (RequestState.FAILED, RequestState.FAILED)
    assert (len(queue), queue.counts.lengths(), queue.take()) == (0, {}, None)


@story
async def test_queue_serves_a_thousand_tenants_in_turns() -> None:
    """Each is served once before any is served twice, and nothing is remembered of them a minute later."""
    clock = HandClock()
    queue = Queue(clock, 10_000, 100_000)
    names = [f"t{i}" for i in range(1000)]
    for name in names * 2:
        queue.put(job("a", tenant=name, expected_ns=10**6))
    order = []
    for _ in range(2000):
        each = queue.take()
        assert each is not None
        order.append(each.request.tenant)
        each.started_ns = clock.now_ns()
        clock.pass_s(0.001)
        each.finished_ns = clock.now_ns()
        queue.ended(each)
    assert order == names * 2
    clock.pass_s(61)
    queue.put(last := job("a", tenant="last"))
    assert queue.take() is last
    last.finished_ns = clock.now_ns()
    queue.ended(last)
    assert list(queue.flows.by_name) == ["last"]


@story
async def test_expired_and_abandoned_jobs_leave_nothing_behind() -> None:
    """Their places are free at once, and what they held is not kept until it would have been their turn."""
    queue = Queue(HandClock(), 2, 100)
    first, second = job(), job()
    queue.put(first)
    queue.put(second)
    queue.expire(second)
    assert isinstance(second.answer.exception(), DeadlineExceeded)
    queue.leave(first)
    assert (first.state, second.state) == (RequestState.FAILED, RequestState.EXPIRED)
    assert (len(queue), queue.counts.lengths(), queue.flows.line.is_busy) == (0, {}, False)
    queue.put(third := job())
    queue.put(fourth := job(priority=1))
    assert [queue.take(), queue.take(), queue.take()] == [fourth, third, None]


@story
async def test_job_passed_over_for_planned_jobs_has_its_turn_after_them(clock: HandClock, queue: Queue) -> None:
    """An application of a tenant is passed over, and all other jobs of the tenant turn out to be late: once no planned
    job waits, the application has its turn.
    """
    beyond, late, planned = job("beyond", tenant="one"), job("late", tenant="one"), job("planned", tenant="two")
    beyond.request.beyond_plan, planned.request.beyond_plan = True, False
    for each in (beyond, late, planned):
        queue.put(each)
    queue.flows.ran("one", "late", 10**6, (1.0, 1.0))  # the other application of the tenant is first,
    queue.flows.ran("two", "planned", 10**9, (1.0, 1.0))  # and the tenant before the other one
    late.answer.cancel()
    assert queue.take() is planned
    assert queue.take() is beyond
    assert len(queue) == 0


@pytest.mark.parametrize(
    ("ahead_ms", "is_item", "is_beside", "first"),
    [
        (450, True, False, "urgent"),
        (550, True, False, "patient"),
        (40, True, True, "urgent"),
        (60, True, True, "patient"),
        (40, False, False, "patient"),
    ],
    ids=["hardly more than the others", "half a second more", "50 ms", "more, while a call waits", "no items"],
)
@story
async def test_items_of_a_tenant_are_ordered_by_their_latest_start(
    ahead_ms: int, is_item: bool, is_beside: bool, first: str, clock: HandClock, queue: Queue
) -> None:
    """Whichever application they ask, as long as that has had hardly more than the others; plain calls by what their
    applications have had alone, and items keep a plain call (`is_beside`) waiting for no longer than 50 ms.
    """
    for name, within_s in (("patient", 3), ("urgent", 1)):
        queue.put(item(name, clock, within_s, is_item=is_item))
    if is_beside:
        queue.put(job("plain", expected_ns=10 * NS_PER_MS))
    queue.flows.ran("t", "urgent", ahead_ms * NS_PER_MS, (1.0, 1.0))
    taken = queue.take()
    assert taken is not None
    assert taken.request.application_id == first
    assert queue.take() is not None
    assert (queue.take() is not None) is is_beside


@story
async def test_call_behind_items_of_its_application_waits_for_its_turn_only(clock: HandClock, queue: Queue) -> None:
    """An application serves a pipeline and calls of its own: other items have no more than 50 ms before its turn,
    though the first that waits for it is an item, too; and as much as ever when the call has gone.
    """
    first, call = item("both", clock, 3), item("both", clock, 4, is_item=False)
    urgent = item("urgent", clock, 1)
    for each in (first, call, urgent):
        queue.put(each)
    queue.flows.ran("t", "urgent", 100 * NS_PER_MS, (1.0, 1.0))
    assert queue.take() is first
    queue.leave(call)
    queue.put(item("both", clock, 3))
    assert queue.take() is urgent


@story
async def test_urgent_items_leave_other_applications_their_share() -> None:
    """Of two applications whose items always wait, the one with later deadlines is behind by 500 ms and a run."""
    clock = HandClock()
    queue = Queue(clock, 1000, 1000)
    run_ns = 100 * NS_PER_MS
    for _ in range(100):
        for name, within_s in (("patient", 30), ("urgent", 20)):
            one = item(name, clock, within_s)
            one.expected_ns = run_ns
            queue.put(one)
    count: Counter[str] = Counter()
    for _ in range(100):
        taken = queue.take()
        assert taken is not None
        clock.pass_s(run_ns / NS_PER_S)
        taken.finished_ns = clock.now_ns()
        queue.ended(taken)
        count[taken.request.application_id] += 1
        assert 0 <= count["urgent"] - count["patient"] <= 6
