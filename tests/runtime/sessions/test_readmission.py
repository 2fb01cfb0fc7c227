"""Who was removed is let in again when what kept it out has passed, and not by turns with others (AR-16, JF-23)."""

import pytest

from appliance.clock import NS_PER_S
from appliance.domain.decisions import DecisionRecord
from appliance.domain.errors import Overloaded
from appliance.domain.session import AccuracyPromise, DropCause, FrameEnd, LatencyPromise, NoticeKind, Promise
from appliance.domain.states import SessionState
from appliance.lab.plan import plan_one
from appliance.runtime.decisions.document import record_of
from appliance.runtime.sessions.frame import end_of
from appliance.runtime.sessions.patience import REST_NS, REST_NS_MAX, STEADY_NS, Patience
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.runtime.sessions.fleet import Fleet, box_with, steady

pytestmark = pytest.mark.gate("a whole engine for minutes of virtual time")


@pytest.mark.parametrize("promise", [LatencyPromise(100.0, 10.0), AccuracyPromise(0.04)], ids=["latency", "accuracy"])
@story
async def test_session_removed_for_slow_link_is_served_when_link_recovers(promise: Promise) -> None:
    """20 Mbit/s, but 0.1 for six seconds: removed for its link. The device sends nothing while it waits, so that
    nothing could show that the link is back; the session is served again all the same, and stays so.
    """
    async with box_with({320: Cost(run_ms=10)}) as (fleet, gate):
        live = await fleet.camera(gate, promise, link=lambda s: 0.1e6 if 10 <= s < 16 else 20e6, drop_rate=0.006)
        (device,) = fleet.devices
        await fleet.pass_s(13.5)
        assert fleet.states == [SessionState.WAITING]
        assert live.reason.startswith("link: ")
        await fleet.pass_s(16.5)
        before, answered = device.told[NoticeKind.REMOVED], live.counts.answered
        await fleet.pass_s(30)
        assert fleet.states == [SessionState.SERVED]
        events = [one for one in fleet.bench.telemetry.recent() if one.facts.get("session") == live.id]
        told = [one.event for one in events]
        assert told[:3] == ["session began", "session removed", "session served"]
        assert str(events[1].facts["reason"]).startswith("link: ")
        assert told.count("session removed") == device.told[NoticeKind.REMOVED] == before <= 4
        assert live.counts.answered > answered + 60


@pytest.mark.nightly("minutes of an overloaded box")
@story
async def test_sessions_on_box_slow_when_full_are_not_removed_by_turns() -> None:
    """Eight cameras of which seven make runs 1.6 times slower, so that six stay: the last two are not removed and let
    in again by turns for ever. Each removal is in the log, with what the planner was asked."""
    async with box_with({320: Cost(run_ms=13)}) as (fleet, gate):
        await fleet.cameras(8, gate, LatencyPromise(100.0, 8.0), wait=True, every_s=0.3)
        told = []
        for _ in range(2):
            for _ in range(120):
                is_full = fleet.states.count(SessionState.SERVED) >= 7
                fleet.bench.processor.slowness = 1.6 if is_full else 1.0
                await fleet.pass_s(0.5)
            told.append(sum(device.told[NoticeKind.REMOVED] for device in fleet.devices))
    assert 2 <= told[1] <= 20
    assert told[1] - told[0] <= 4
    assert told[1] == _check_log(fleet)


@story
async def test_removal_without_planner_is_in_decision_log() -> None:
    """The session's variants are gone: no planner was asked, and the log says why the session waits."""
    async with box_with({320: Cost(run_ms=13)}) as (fleet, gate):
        live = await fleet.camera(gate, LatencyPromise(100.0, 8.0))
        await fleet.pass_s(2)
        fleet.sessions.planning.refused(gate.id, "v320")
        await fleet.pass_s(1)
        assert live.reason == "memory: no variant with enough accuracy fits into memory"
    assert _check_log(fleet) == 1


@story
async def test_refusal_without_planner_is_in_decision_log() -> None:
    """A drop that no box could keep over this link."""
    async with box_with({320: Cost(run_ms=13)}) as (fleet, gate):
        await fleet.refused(gate, AccuracyPromise(0.001), mbps=1)
    record = decided(fleet, "offload")[0]
    assert record.answer["outcome"] == "refused"
    assert record.answer["reason"] == "link: even alone it would see results too late"
    assert plan_one(record.problem)["plan"] is None


@story
async def test_changed_pace_is_in_decision_log_and_can_be_replayed() -> None:
    """A device's link becomes slow: how often it sends changes, and no session comes or goes."""

    def link(after_s: float) -> float:
        return (40.0 if after_s < 5 else 4.0) * 1e6

    async with box_with({320: Cost(run_ms=13)}) as (fleet, gate):
        await fleet.camera(gate, AccuracyPromise(0.1), mbps=40, link=link, drop_rate=0.006, wait=True)
        await fleet.pass_s(15)
        assert fleet.states == [SessionState.SERVED]
    paces = set()
    told = [facts for kind, facts in fleet.bench.decisions.told if kind == "offload"]
    for record, facts in zip(decided(fleet, "offload"), told, strict=True):
        if record.answer["outcome"] != "planned":
            continue
        assert_replays(record, "clients", "batches")
        paces |= {one["interval"] for one in record.answer["clients"]}
        if not record.answer["admitted"]:
            assert "key" in facts  # of such changes one in a minute is written
    assert len(paces) > 1


@story
async def test_removal_of_accuracy_sessions_can_be_decided_again() -> None:
    """The network becomes four times as slow, so that sessions have to go: what the log says of each plan is what the
    policy decides again, and each session that went is named, with a reason about its promise.
    """
    async with box_with({320: Cost(run_ms=13)}) as (fleet, gate):
        lives = [await fleet.join(gate, AccuracyPromise(0.03), mbps=40, weight=1 + at % 3) for at in range(8)]
        for live in lives:
            fleet.stream(live, steady(40), drop_rate=0.004)
        await fleet.pass_s(5)
        fleet.bench.processor.costs[fleet.bench.build("v320", gate.id)].run_ms = 52
        await fleet.pass_s(20)
    gone = set()
    for record in decided(fleet, "offload"):
        if record.answer["outcome"] == "removed":
            gone.add(record.answer["session"])
            assert "promise" in record.answer["reason"] or "weight" in record.answer["reason"]
        else:
            assert_replays(record, "clients", "admitted", "removed", "batches", "reason")
            gone |= set(record.answer["removed"])
    assert fleet.sessions.planning.figures.removals > 0
    assert gone >= {live.id for live in lives if live.state is SessionState.WAITING} != set()


@story
async def test_drop_rate_of_departed_device_is_forgotten_after_a_minute() -> None:
    """A device reports that it loses a fifth with each frame: a session that joins just after it is taken for a device
    of that rate, too, and a minute later for an ordinary one.
    """
    promise = AccuracyPromise(0.04)
    async with box_with({320: Cost(run_ms=13)}) as (fleet, gate):
        live = await fleet.camera(gate, promise, wait=True, drop_rate=0.2)
        await fleet.pass_s(2)
        fleet.disconnect(fleet.devices[0])
        await fleet.sessions.end(live)
        await fleet.refused(gate, promise, mbps=20)
        await fleet.pass_s(61)
        assert (await fleet.join(gate, promise, mbps=20)).state is SessionState.SERVED


@story
async def test_long_decode_time_is_forgotten() -> None:
    """A machine that stood still for a moment: a session that is not let in for it could never show that the machine is
    quick again.
    """
    promise = LatencyPromise(100.0, 8.0)
    async with box_with({320: Cost(run_ms=13)}, decode_ms=90.0) as (fleet, gate):
        live = await fleet.camera(gate, LatencyPromise(200.0, 8.0))
        await fleet.pass_s(5)
        await fleet.refused(gate, promise, mbps=20)
        await fleet.sessions.end(live)
        await fleet.pass_s(11)
        assert (await fleet.join(gate, promise, mbps=20)).state is SessionState.SERVED


def decided(fleet: Fleet, kind: str) -> list[DecisionRecord]:
    """What the log has of one kind."""
    at = fleet.clock.wall_now()
    return [record_of(at, told, facts) for told, facts in fleet.bench.decisions.told if told == kind]


def assert_replays(record: DecisionRecord, *keys: str) -> None:
    """The policy decides the same again."""
    again = plan_one(record.problem)
    assert {key: again[key] for key in keys} == {key: record.answer[key] for key in keys}


def _check_log(fleet: Fleet) -> int:
    """How many removals of latency sessions the log has; what planners decided is decided again."""
    removals = 0
    for record in decided(fleet, "adaptation"):
        if record.problem.get("plan", record.problem) is not None:
            assert_replays(record, *(key for key in plan_one(record.problem) if key != "elapsed_ms"))
        if record.answer["outcome"] == "removed":
            assert record.answer["session"]
            assert record.answer["reason"]
            removals += 1
    return removals


def test_session_removed_soon_after_admission_rests_ever_longer() -> None:
    """Let in and removed after a second each time: 1, 2, 4 ... 60 s; after half a minute of service the session is
    tried at once.
    """
    patience, now_ns, rests = Patience(), NS_PER_S, []
    for _ in range(8):
        patience.served(now_ns)
        now_ns += NS_PER_S
        patience.removed(now_ns)
        rests.append((patience.again_ns - now_ns) // REST_NS)
        now_ns = patience.again_ns
    assert rests == [1, 2, 4, 8, 16, 32, 60, 60]
    assert REST_NS_MAX == 60 * REST_NS
    patience.served(now_ns)
    patience.removed(now_ns + STEADY_NS)
    assert patience.again_ns == now_ns + STEADY_NS


def test_frame_refused_for_long_queue_counts_as_hopeless() -> None:
    """No bound of the box has stopped it, nor a quota."""
    error = Overloaded(application_id="t/gate", expected_ms=200.0, allowed_ms=100.0, retry_after_s=0.1)
    assert end_of(error) == (FrameEnd.DROPPED, DropCause.HOPELESS)
