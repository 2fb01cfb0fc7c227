"""Cases worked out by hand, against the classes that the box runs: budgets, deadlines, references, offers, credit."""

from dataclasses import replace

import pytest

from appliance.clock import NS_PER_MS
from appliance.domain.errors import CreditExceeded
from appliance.domain.session import (
    AccuracyPromise,
    DeviceReport,
    DropCause,
    LatencyPromise,
    SessionPlan,
)
from appliance.runtime.sessions import adapting, offloading
from appliance.runtime.sessions.adapting import FrameOverhead
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.pools import key_of
from appliance.runtime.sessions.zoo import Rung
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.runtime.sessions.fleet import Fleet, box_with
from tests.runtime.sessions.stage import Stage, running

KILOBYTES_640 = 53.248
"""A picture of 640 pixels before any has come: 0.13 bytes for each of 640 x 640 pixels."""


async def _rung(fleet: Fleet) -> tuple[Rung, LiveSession]:
    """The rung of 640 pixels, and a session on a link of 16 Mbit/s and a round trip of 10 ms."""
    gate = fleet.add({640: Cost(run_ms=40)})
    live = await fleet.join(gate, LatencyPromise(150.0, 5.0), mbps=16)
    (rung,) = fleet.sessions.planning.zoos.of(key_of(live)).rungs
    return rung, live


@story
async def test_frame_budget_allows_own_wait_and_longest_foreign_run() -> None:
    """Eq. 5: 53,248 bytes at 16 Mbit/s are 26.624 ms. Of 150 ms, 5 go up, 5 go down, 4 go to decoding and 30 to a run
    of others; 79.376 are left for the wait and the run, 39.688 for each. Without the others it is 54.688.
    """
    fleet = Fleet()
    async with fleet.working():
        rung, live = await _rung(fleet)
        assert live.sent.expected_bytes(rung.size) == pytest.approx(KILOBYTES_640 * 1000)
        for foreign_ms, most_ms in ((30.0, 39.688), (0.0, 54.688)):
            for ms, is_kept in ((most_ms - 0.001, True), (most_ms + 0.001, False)):
                one = replace(rung, worst_ms={1: ms})
                assert adapting.keeps(live, one, FrameOverhead(4.0, foreign_ms)) is is_kept


@story
async def test_longest_foreign_run_counts_pools_and_requests_without_session() -> None:
    """Pools of 12 and 20 ms, requests without a session of 36 ms, two workers: 18 ms, the first to be free; a pool does
    not wait for itself; and where requests take next to nothing, 10."""
    fleet = Fleet(workers=2)
    async with fleet.working():
        _, live = await _rung(fleet)
        context, key = fleet.sessions.planning.context, key_of(live)
        for number, ms in enumerate((12.0, 20.0)):
            context.pools.pool(replace(key, tenant=f"other-{number}")).run_ms_max = ms
        context.pools.pool(key).run_ms_max = 99.0
        context.ledger.unplanned, context.ledger.unplanned_run_ms = 0.2, 36.0
        assert context.beside(key).foreign_ms == 18.0
        context.ledger.unplanned = 0.005
        assert context.beside(key).foreign_ms == 10.0


def test_frame_deadline_is_capture_plus_slo_minus_downlink() -> None:
    """Captured 30 ms ago, 100 ms promised, 12 ms back: 58 ms from now. Unless the device says otherwise the way back is
    half a round trip: of 20 ms, 60."""
    stage = Stage()
    stage.live.report(DeviceReport(rtt_ms=20.0))
    now_ns = stage.clock.now_ns()
    assert stage.live.begin(stage.head(0, age_ms=30.0)).deadline_ns - now_ns == 60 * NS_PER_MS
    stage.live.report(DeviceReport(downlink_ms=12.0))
    assert stage.live.begin(stage.head(1, age_ms=30.0)).deadline_ns - now_ns == 58 * NS_PER_MS


@story
async def test_age_of_results_counts_from_capture_for_fresh_reference() -> None:
    """30 frames a second, θ = 0.05, 0.01 lost at once and 0.004 a frame: (0.05 - 0.01) / 0.004 = 10 frames of age are
    allowed. A box for itself shows what is ⌈(4 + 5 + 26.624 + 20 + 5) · 0.03⌉ = ⌈1.8⌉ = 2 frames old, at an interval of
    one frame: a drop of 0.018, within reach; with 0.045 lost at once 0.053, beyond it. Against that box 7 frames of age
    lose 5 · 0.004 = 0.02, and a younger result loses nothing.
    """
    async with box_with({640: Cost(run_ms=20)}) as (fleet, gate):
        live = await fleet.join(gate, AccuracyPromise(0.05), mbps=16, fps=30.0)
        rung = replace(fleet.sessions.planning.zoos.of(key_of(live)).best, usual_ms={1: 20.0})
        live.report(DeviceReport(drop_rate=0.004, drop_base=0.01))
        assert live.stride_allowed == pytest.approx(10.0)
        assert offloading.dedicated_stride(live, rung, 30.0, 4.0) == 2.0
        assert live.drop_of(2.0) == pytest.approx(0.018)
        assert not offloading.is_out_of_reach(live, [rung], 4.0)
        live.report(DeviceReport(drop_base=0.045))
        assert offloading.is_out_of_reach(live, [rung], 4.0)
        live.reference_stride = 2.0
        assert live.drop_beside_dedicated(7.0) == pytest.approx(0.02)
        assert live.drop_beside_dedicated(1.0) == 0.0


@pytest.mark.anyio
async def test_session_credit_counts_frame_heads_without_body() -> None:
    """Two heads; a third is refused, dropped and counted; the first body comes, and there is room for one more, not for
    two: five heads, two of them dropped. Both that came whole are answered, one that never does is lost."""
    stage = Stage()
    live = stage.live
    first, second = live.begin(stage.head(0)), live.begin(stage.head(1))
    with pytest.raises(CreditExceeded):
        live.begin(stage.head(2))
    first.received(b"one")
    third = live.begin(stage.head(3))
    with pytest.raises(CreditExceeded):
        live.begin(stage.head(4))
    third.received(b"two")
    await first.run(running(None))
    await third.run(running(None))
    second.lost()
    counts = live.counts
    assert (counts.sent, counts.answered, counts.late, counts.lost) == (5, 2, 0, 1)
    assert (dict(counts.drops), counts.under_way) == ({DropCause.CREDIT: 2}, 0)


def test_frame_places_within_promised_rate_come_back_with_time() -> None:
    """15 a second, 2 % more for clocks that differ: four at once have a place, the fifth has not; after 66 ms one has,
    for 0.066 · 15.3 = 1.01, and the next has none.
    """
    stage = Stage()
    live = stage.live
    live.take(SessionPlan(1, "v", 320, 75, 2, (), 0.0, 0))
    planned = []
    for number in range(5):
        frame = live.begin(stage.head(number))
        planned.append(frame.is_planned)
        frame.received(b"x")
    stage.clock.pass_s(0.066)
    for number in (5, 6):
        frame = live.begin(stage.head(number))
        planned.append(frame.is_planned)
        frame.received(b"x")
    assert planned == [True] * 4 + [False, True, False]
    assert live.counts.unplanned == 2
