"""The planners live: devices on emulated links, the whole engine, virtual time."""

import asyncio
import random
from collections.abc import Awaitable
from contextlib import AsyncExitStack, suppress

import pytest
from structlog.testing import capture_logs

from appliance.clock import NS_PER_S
from appliance.domain.errors import PromiseNotPossible
from appliance.domain.session import (
    AccuracyPromise,
    Cause,
    DropCause,
    LatencyPromise,
    NoticeKind,
    Promise,
    Reference,
)
from appliance.domain.states import SessionState
from appliance.runtime.sessions import accuracy_plans, latency_plans
from appliance.runtime.sessions.pools import key_of
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.present import present
from tests.runtime.sessions.fleet import Fleet, box_with, promise_of, steady

pytestmark = pytest.mark.gate("a whole engine for minutes of virtual time")

ZOO = {
    640: Cost(run_ms=40),
    480: Cost(run_ms=24),
    320: Cost(run_ms=13),
    160: Cost(run_ms=6),
}


@story
async def test_latency_sessions_of_four_cameras_keep_every_window() -> None:
    """4 × 15 frames a second within 150 ms on 15 Mbit/s: every window is kept, and not with the smallest variant."""
    async with box_with(ZOO, workers=2) as (fleet, gate):
        await fleet.cameras(4, gate, LatencyPromise(150.0, 15.0), mbps=15)
        await fleet.pass_s(62)
        for device in fleet.devices:
            counts = device.live.counts
            assert counts.sent > 800
            assert counts.answered >= 0.99 * (counts.sent - counts.under_way), counts
            assert counts.captured == pytest.approx(device.captured, abs=3)
        assert fleet.kept_share >= 0.99
        assert any(device.live.variant != "v160" for device in fleet.devices)


@story
async def test_session_on_narrower_link_gets_smaller_frames() -> None:
    """From 20 to 3 Mbit/s and back: the variant follows within a second, and the device is told."""
    async with box_with(ZOO) as (fleet, gate):
        live = await fleet.camera(gate, LatencyPromise(150.0, 10.0), link=lambda s: 3e6 if 10 <= s < 20 else 20e6)
        sizes = []
        for after_s in (9.0, 2.5, 12.0):
            await fleet.pass_s(after_s)
            sizes.append(int(live.variant[1:]))
        assert sizes[0] > sizes[1] < sizes[2]
        assert fleet.devices[0].told[NoticeKind.VARIANT] >= 2
        assert live.counts.answered >= 0.9 * live.counts.sent


@pytest.mark.parametrize(
    ("rates_bps", "least", "most"), [((40e6, 2e6), 51, 1000), ((4e9, 200e6), 35, 42)], ids=["radio", "wire"]
)
@story
async def test_plan_is_made_early_only_for_link_change_with_effect(
    rates_bps: tuple[float, float], least: int, most: int
) -> None:
    """In 20 seconds in which the link changes every other second. A wire carries a frame in a millisecond or two: its
    estimates change by a fifth all the time.
    """
    async with box_with(ZOO) as (fleet, gate):
        await fleet.camera(gate, LatencyPromise(300.0, 10.0), link=lambda s: rates_bps[int(s / 2) % 2])
        await fleet.pass_s(5)
        before = fleet.sessions.planning.deciding.count
        await fleet.pass_s(20)
        assert least <= fleet.sessions.planning.deciding.count - before <= most


@story
async def test_decision_times_of_a_session_are_zero_once_nothing_is_planned_with_it() -> None:
    async with box_with(ZOO) as (fleet, gate):
        live = await fleet.camera(gate, LatencyPromise(300.0, 10.0))
        await fleet.pass_s(2)
        assert fleet.sessions.planning.decisions_of(live)[0] > 0
        await fleet.sessions.end(live)
        await fleet.pass_s(10)
        assert fleet.sessions.planning.decisions_of(live) == (0, 0.0, 0.0)


@story
async def test_session_beyond_capacity_is_refused_and_breaks_no_promise() -> None:
    """Cameras join until a session is refused, with the processor as the cause; all that were let in keep their
    promise.
    """
    async with box_with(ZOO) as (fleet, gate):
        lives, refusal = await fleet.fill(gate, LatencyPromise(100.0, 15.0), mbps=50, every_s=1.1, most=30)
        assert refusal.cause == Cause.PROCESSOR
        assert refusal.offers
        assert len(lives) >= 5
        await fleet.pass_s(31)
        assert set(fleet.states) == {SessionState.SERVED}
        assert all(device.told[NoticeKind.REMOVED] == 0 for device in fleet.devices)
        assert fleet.kept_share >= 0.99


@pytest.mark.nightly("minutes of many devices")
@story
async def test_counter_offers_taken_at_once_are_let_in() -> None:
    """Of random promises on random boxes that were refused, 95 of 100 counter-offers are possible when posted."""
    taken = asked = 0
    for seed in range(12):
        rng = random.Random(seed)
        async with box_with(ZOO, workers=rng.choice([1, 2])) as (fleet, gate):
            for _ in range(25):
                promise: Promise = (
                    LatencyPromise(rng.choice([40.0, 75.0, 100.0, 150.0]), rng.choice([5.0, 15.0, 25.0]))
                    if rng.random() < 0.7
                    else AccuracyPromise(rng.choice([0.02, 0.05, 0.1]))
                )
                mbps, rtt_ms = rng.choice([2.0, 10.0, 40.0]), rng.choice([5.0, 30.0])
                try:
                    await fleet.camera(gate, promise, mbps=mbps, rtt_ms=rtt_ms)
                except PromiseNotPossible as error:
                    for offer in error.offers:
                        asked += 1
                        with suppress(PromiseNotPossible):
                            live = await fleet.join(gate, promise_of(offer), mbps=mbps, rtt_ms=rtt_ms)
                            taken += 1
                            await fleet.sessions.end(live)
                await fleet.pass_s(rng.uniform(0.1, 1.0))
    assert asked >= 20
    assert taken >= 0.95 * asked


@pytest.mark.nightly("a long story of many plans")
@story
async def test_accuracy_promises_are_kept() -> None:
    """60 frames a second, batches that gain: as many as are let in see drops within their promise."""
    batches = {2: 26.0, 3: 33.0, 4: 40.0, 5: 48.0, 6: 55.0, 7: 63.0, 8: 70.0}
    async with box_with({320: Cost(run_ms=20, run_ms_by_batch=batches)}) as (fleet, gate):
        lives, _ = await fleet.fill(gate, AccuracyPromise(0.12), fps=60.0, mbps=40, drop_rate=0.006, every_s=0.3)
        assert len(lives) >= 3
        await fleet.pass_s(30)
        served = [live for live in lives if live.state is SessionState.SERVED]
        assert len(served) >= 0.9 * len(lives)
        assert sum(live.windows for live in served) >= 20 * len(served)
        assert fleet.kept_share >= 0.98


@story
async def test_first_promise_counts_plain_requests_before_session() -> None:
    """Runs of 60 ms, one behind the other, of a caller without a session: 60 ms are not promised beside them, which
    alone would be kept with 13 ms. There is no session that would have waited for its turn meanwhile.
    """
    promise = LatencyPromise(60.0, 5.0)
    async with box_with(ZOO) as (fleet, gate):
        async with fleet.asked(fleet.bench.add({"p": Cost(run_ms=60)}, name="plain")):
            await fleet.pass_s(5.0)
            await fleet.refused(gate, promise, mbps=50)
        await fleet.pass_s(12.0)
        assert (await fleet.join(gate, promise, mbps=50)).state is SessionState.SERVED


@story
async def test_session_left_out_of_first_plan_is_refused_or_waits() -> None:
    """Others begin to take the processor in the midst of an admission: a session that does not want
    to wait is refused.
    """
    fleet, promise = Fleet(), LatencyPromise(60.0, 5.0)
    gate, ledger = fleet.add(ZOO), fleet.sessions.planning.ledger

    async def meanwhile() -> None:
        ledger.unplanned, ledger.unplanned_run_ms = 0.3, 100.0

    with fleet.deciding("adapt", meanwhile):
        assert (await fleet.refused(gate, promise, mbps=50)).cause == Cause.PROCESSOR
        assert not fleet.sessions.live
        ledger.unplanned = 0.0
        assert (await fleet.join(gate, promise, mbps=50, wait=True)).state is SessionState.WAITING


@pytest.mark.nightly("minutes of many devices")
@story
async def test_worker_without_sessions_keeps_network() -> None:
    """Three workers with 480, 320 and 160 (promises that allow no more); the session on 480 leaves, and then one comes
    for 640: it goes to the worker of 480, and the two others stay where they are (JF-18).
    """
    async with box_with(ZOO, workers=3) as (fleet, gate):
        lives = [await fleet.join(gate, LatencyPromise(slo_ms, 15.0), mbps=500) for slo_ms in (70.0, 45.0, 28.0)]
        await fleet.pass_s(2.0)
        pool = fleet.sessions.planning.pools.pool(key_of(lives[0]))
        before = pool.previous
        assert sorted(map(str, before)) == ["v160", "v320", "v480"]
        await fleet.sessions.end(lives[0])
        await fleet.pass_s(2.0)
        assert pool.previous == before
        await fleet.join(gate, LatencyPromise(120.0, 15.0), mbps=500)
        await fleet.pass_s(2.0)
        assert pool.previous == tuple("v640" if name == "v480" else name for name in before)


@pytest.mark.nightly("a long story of many plans")
@story
async def test_promises_of_both_kinds_hold_beside_plain_requests() -> None:
    """Cameras of both kinds beside unplanned requests of another tenant."""
    async with box_with(ZOO) as (fleet, gate):
        plain = fleet.bench.add({"p": Cost(run_ms=5)}, name="plain", tenant="other")
        async with fleet.asked(plain, every_ms=45):
            await fleet.pass_s(5)
            for promise in (LatencyPromise(150.0, 10.0), AccuracyPromise(0.2), LatencyPromise(100.0, 5.0)):
                await fleet.camera(gate, promise, mbps=30)
            await fleet.pass_s(32)
        assert fleet.kept_share >= 0.98, [(d.live.promise, d.live.windows, d.live.kept) for d in fleet.devices]


@pytest.mark.nightly("a long story of many plans")
@story
async def test_session_beyond_promised_rate_breaks_no_promise() -> None:
    """A camera of a full box sends six times what it was promised: frames beyond run in gaps or are dropped with a
    cause of their own, and all promises are kept, that of the camera among them.
    """
    async with box_with({320: Cost(run_ms=13)}) as (fleet, gate):
        greedy = await fleet.camera(gate, LatencyPromise(150.0, 5.0), mbps=50, is_greedy=True)
        await fleet.cameras(3, gate, LatencyPromise(150.0, 15.0), mbps=50)
        await fleet.pass_s(32)
        counts = greedy.counts
        assert counts.sent > 5 * 150
        assert counts.unplanned == pytest.approx(counts.sent - 5 * 32, rel=0.1)
        assert counts.drops[DropCause.OVER_RATE] > 0
        assert counts.answered > 5 * 32  # there are gaps
        assert fleet.kept_share >= 0.98, [(d.live.counts, d.live.windows, d.live.kept) for d in fleet.devices]


@story
async def test_plan_avoids_variant_that_memory_has_refused() -> None:
    """A variant that finds no room is not planned with for a while; frames go on with the next one."""
    sizes = {640: Cost(run_ms=20, resident_bytes=90), 320: Cost(run_ms=10, resident_bytes=20)}
    async with box_with(sizes, budget=100) as (fleet, gate):
        other = fleet.bench.add({"big": Cost(run_ms=5, resident_bytes=70)}, name="other", tenant="other")
        live = await fleet.join(gate, LatencyPromise(150.0, 10.0), mbps=50)
        assert live.variant == "v640"
        servable = fleet.bench.catalogue.entry(other.id).servables["big"]
        pinned = await fleet.bench.memory.pin(servable.build_id, servable.resident_bytes, servable.peak_bytes, None)
        fleet.stream(live, steady(50))
        await fleet.pass_s(5)
        assert live.variant == "v320"
        assert live.counts.answered > 20
        fleet.bench.memory.unpin(pinned)


@story
async def test_session_without_link_is_suspended_and_served_after_reconnect() -> None:
    """1.5 s without a link: suspended with its capacity kept, and answered again half a second
    after the link is back.
    """
    async with box_with(ZOO) as (fleet, gate):
        live = await fleet.camera(gate, LatencyPromise(150.0, 15.0))
        (device,) = fleet.devices
        await fleet.pass_s(5)
        fleet.disconnect(device)
        await fleet.pass_s(1.5)
        assert fleet.states == [SessionState.SUSPENDED]
        before = live.counts.answered
        back = fleet.stream(live, steady(20), from_frame=device.captured + 45)
        await fleet.pass_s(0.5)
        assert live.counts.answered > before
        fleet.disconnect(back)
        await fleet.pass_s(62)
        assert set(fleet.states) == {SessionState.ENDED}
        assert list(fleet.sessions.live) == []
        await fleet.pass_s(61)
        assert list(fleet.sessions.list("t")) == []


@pytest.mark.nightly("minutes of many devices")
@story
async def test_sessions_joining_and_leaving_at_random_keep_windows_and_counts() -> None:
    """Devices of both kinds and two tenants come, pause, lose their links and go, at random: every frame is counted
    once, nearly all windows are kept, and nothing is left at the end."""
    rng = random.Random(11)
    async with box_with(ZOO, tenant="one", workers=2) as (fleet, mine):
        theirs = fleet.add({320: Cost(run_ms=8)}, tenant="two", name="two")
        for _ in range(70):
            there = [device for device in fleet.devices if device.live.state is not SessionState.ENDED]
            step = rng.random()
            if step < 0.5:
                promise: Promise = LatencyPromise(rng.choice([100.0, 200.0]), rng.choice([5.0, 10.0]))
                if rng.random() < 0.3:
                    promise = AccuracyPromise(rng.choice([0.1, 0.2]))
                with suppress(PromiseNotPossible):
                    await fleet.camera(rng.choice([mine, theirs]), promise, mbps=30)
            elif there and step < 0.8:
                await fleet.sessions.end(rng.choice(there).live)
            elif there and step < 0.9:
                fleet.disconnect(rng.choice(there))
            elif there:
                live = rng.choice(there).live
                await fleet.sessions.change(live, is_paused=not live.session.is_paused)
            await fleet.pass_s(rng.uniform(0.05, 1.5))
        assert len(fleet.devices) > 15
        for device in fleet.devices:
            await fleet.sessions.end(device.live)
        await fleet.pass_s(2)
        for device in fleet.devices:
            counts = device.live.counts
            assert counts.under_way == 0
            assert counts.sent == counts.answered + counts.late + counts.dropped + counts.lost
        assert fleet.sessions.planning.ledger.planned == 0.0
    assert fleet.kept_share >= 0.97
    fleet.bench.assert_quiet()


@story
async def test_promise_of_dedicated_reference_is_judged_against_dedicated_box() -> None:
    """On a link whose transfer time alone loses more than is allowed against fresh results."""
    async with box_with(ZOO) as (fleet, gate):
        live = await fleet.camera(gate, AccuracyPromise(0.05, Reference.DEDICATED), rtt_ms=200.0, drop_rate=0.02)
        await fleet.pass_s(6)
        assert live.kept == live.windows >= 3
        assert live.drop_of(live.reference_stride) > 0.05


@story
async def test_pool_that_cannot_be_planned_stops_no_other_pool() -> None:
    """A promise that no planner can count with: the plans of other tenants' devices go on."""
    promise = LatencyPromise(150.0, 5.0)
    with capture_logs() as told:  # each would be drawn for seconds, with all that its stack holds
        async with box_with(ZOO, tenant="a") as (fleet, odd):
            one = await fleet.join(odd, promise, mbps=20)
            other = await fleet.camera(fleet.add(ZOO, name="b", tenant="b"), promise)
            await fleet.pass_s(1)
            await fleet.sessions.change(one, is_paused=True)
            await fleet.sessions.change(one, promise=LatencyPromise(150.0, 1e-310))
            with suppress(OverflowError, RuntimeWarning):  # of the counting itself
                await fleet.sessions.change(one, is_paused=False)
            await fleet.pass_s(1)
            before = present(other.plan).number
            await fleet.pass_s(2)
            assert present(other.plan).number >= before + 2
    assert any(line["event"] == "a pool was not planned" for line in told)


async def turns_of(work: Awaitable[None]) -> int:
    """Turns that the event loop has meanwhile."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)  # noqa: TID251 - turns are counted, no time passes
            turns += 1

    counting = asyncio.create_task(count())
    await work
    counting.cancel()
    return turns


@story
async def test_planning_of_either_kind_yields_to_event_loop_between_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many sessions there are: the event loop turns between pools, and within a pool every few sessions."""
    fleet = Fleet()
    gates = [fleet.add({160: Cost(run_ms=1)}, name=f"gate-{number}") for number in range(5)]
    for number in range(40):
        await fleet.join(gates[number % 4], LatencyPromise(500.0, 0.1), fps=1.0, mbps=50)
    for _ in range(12):
        await fleet.join(gates[4], AccuracyPromise(0.4), fps=5.0, mbps=50)
    monkeypatch.setattr(latency_plans, "AT_ONCE", 4)
    monkeypatch.setattr(accuracy_plans, "AT_ONCE", 2)
    assert await turns_of(fleet.sessions.planning.adapt_all()) >= 4 + 40 // 4
    assert await turns_of(fleet.sessions.planning.offload_all()) >= 12 // 2 - 1


@story
async def test_paused_session_has_no_weight_and_ends_after_a_day() -> None:
    """Meanwhile its tenant's share belongs to the others; a session that goes on in time is not taken for silent."""
    async with box_with(ZOO, tenant="a") as (fleet, gate):
        lives = one, _ = [await fleet.join(gate, LatencyPromise(150.0, 5.0), mbps=20) for _ in range(2)]
        assert list(fleet.sessions.applications.active_weights()) == ["a"]
        for live, hours in zip(lives, (23, 24), strict=True):
            await fleet.sessions.change(live, is_paused=True)
            live.last_heard_ns -= hours * 3600 * NS_PER_S
        assert fleet.sessions.applications.active_weights() == {}
        await fleet.pass_s(1)
        assert [live.state for live in lives] == [SessionState.SUSPENDED, SessionState.ENDED]
        await fleet.sessions.change(one, is_paused=False)
        await fleet.pass_s(1)
        assert one.state is SessionState.SERVED


@story
async def test_planned_batches_begin_in_time_under_flood() -> None:
    """Another tenant asks without end, in runs that are longer than a batch's grace: no batch begins later than that,
    and the processor idles no more than its gaps are too short.
    """
    async with (
        box_with({320: Cost(run_ms=20, run_ms_by_batch={2: 30, 4: 50})}) as (fleet, gate),
        AsyncExitStack() as stack,
    ):
        flood = fleet.bench.add({"v": Cost(run_ms=8, load_ms=0)}, name="flood", tenant="u")
        await fleet.cameras(4, gate, AccuracyPromise(0.035))
        await fleet.pass_s(2)
        for _ in range(6):
            await stack.enter_async_context(fleet.asked(flood))
        (worker,) = fleet.bench.engine.workers
        before, busy_ns = fleet.sessions.planning.batch_counts(), worker.busy_ns
        await fleet.pass_s(5)
        counts = fleet.sessions.planning.batch_counts()
        assert counts.full - before.full > 40
        assert counts.late == before.late
        assert worker.busy_ns - busy_ns > 0.95 * 5 * NS_PER_S
