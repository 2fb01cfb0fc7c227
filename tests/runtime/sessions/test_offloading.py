"""Sessions with promises of accuracy as the planner sees them."""

from dataclasses import replace

import pytest

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.session import AccuracyPromise, FrameEnd, FrameHead, Reference
from appliance.policies.offload.base import Batch, Client
from appliance.runtime.engine.work import Call, Kind
from appliance.runtime.sessions.batches import Batches
from appliance.runtime.sessions.frame import FrameResult
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.offloading import (
    FORGIVING,
    STRICT,
    Lenience,
    Scale,
    Shift,
    clients_of,
    gates_of,
    previous_of,
    shift_of,
)
from appliance.runtime.sessions.zoo import Rung, zoo_of
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.processor import Cost
from tests.runtime.engine.driver import call
from tests.runtime.sessions.fleet import Fleet
from tests.runtime.sessions.stage import SESSION, Stage

FPS = 50.0
EPOCH_NS = 999 * NS_PER_S


def session_of(phase_ms: float, reference: Reference) -> LiveSession:
    """Of a device that captures so long after the pool's instants; frames take 8 ms, results 6 ms."""
    stage = Stage(replace(SESSION, fps=FPS, promise=AccuracyPromise(0.1, reference)))
    live, clock = stage.live, stage.clock
    live.downlink_ms = 6.0
    for number in range(8):
        captured_ns = clock.now_ns() + int(phase_ms * NS_PER_MS)
        clock.pass_s((phase_ms + 8.0) / 1000.0)
        frame = live.begin(FrameHead(number, clock.now_ns() - 7 * NS_PER_MS, captured_ns, None, 1000, 320))
        frame.received(b"x" * 1000)
        clock.pass_s(0.002)
        frame.end(FrameResult(number, FrameEnd.ANSWERED, clock.now_ns(), b"", "v"))
        clock.pass_s((10.0 - phase_ms) / 1000.0)
    return live


def rungs_of(run_ms: float) -> list[Rung]:
    """Of an application with one variant."""
    fleet = Fleet()
    entry = fleet.bench.catalogue.entry(fleet.add({320: Cost(run_ms=run_ms)}).id)
    rungs, _, _ = zoo_of(entry, 0.0, 1, fleet.clock.now_ns(), lambda servable: True)
    return rungs


def client_of(live: LiveSession, rungs: list[Rung], share: float = 1.0, lenience: Lenience = STRICT) -> Client:
    """As the planner sees it, alone."""
    scale = Scale(EPOCH_NS, FPS)
    shift = shift_of(live, scale, None)
    assert shift is not None
    return clients_of([live], rungs, scale, {"s": shift}, share, lenience={"s": lenience})["s"]


@story
async def test_late_capture_counts_as_longer_uplink_and_shorter_downlink() -> None:
    """By the same time: neither the age of the results shown nor the reference depends on it."""
    rungs = rungs_of(10)
    for reference, expected in ((Reference.DEDICATED, 2.0), (Reference.FRESH, 0.0)):
        on_time, after = (client_of(session_of(ms, reference), rungs) for ms in (0.0, 9.0))
        assert after.uplink_ms == pytest.approx(on_time.uplink_ms + 9.0)
        assert after.downlink_ms == pytest.approx(on_time.downlink_ms - 9.0)
        assert after.last_result_ms == on_time.last_result_ms == pytest.approx(1150.0 + 6.0)
        assert [ms for _, ms in after.arrivals] == pytest.approx([ms + 9.0 for _, ms in on_time.arrivals])
        assert after.reference_stride == on_time.reference_stride == expected
        assert after.accuracy_slo == pytest.approx(on_time.accuracy_slo)
        busy = client_of(session_of(9.0, reference), rungs, share=0.5)
        assert busy.reference_stride == expected, "a box that serves nobody else has all of its processor"


@story
async def test_plan_with_lenience_still_aims_at_promise() -> None:
    """A plan may break the promise for the moment, and paces the session as if it might not."""
    live, rungs = session_of(0.0, Reference.FRESH), rungs_of(10)
    usual, forgiven = client_of(live, rungs), client_of(live, rungs, lenience=FORGIVING)
    assert forgiven.accuracy_slo > usual.accuracy_slo
    assert forgiven.accuracy_slo - forgiven.kept_free == pytest.approx(usual.accuracy_slo - usual.kept_free)


class Planned:
    """Batches of a pool as the planner made them, and as the scheduler has them. No worker is there yet."""

    def __init__(self, batches: list[Batch], shifts: dict[str, Shift], rung: Rung) -> None:
        self.bench = EngineBench()
        self.gates = Batches(self.bench.clock, self.bench.queue, "lane", "t")
        self.batches, self.shifts = batches, shifts
        self.scale = Scale(self.bench.clock.now_ns(), FPS)
        now_ns = self.bench.clock.now_ns()
        self.gates.plan(gates_of(batches, {rung.name: rung}, rung.name, self.scale, shifts, now_ns))

    def put(self, session: str, number: int, variant: str = "") -> Call:
        """Put a frame that belongs to a batch."""
        member = session, number
        frame = call("t", 40, kind=Kind.FRAME, slot=self.gates.slot(member, is_planned=True), variant=variant)
        self.bench.queue.scheduler.put(frame, self.bench.clock.now_ns())
        self.bench.queue.look()
        return frame

    def previous(self) -> tuple[list[Batch], int]:
        """The batches as the next plan begins with them, and until when the processor is busy."""
        lost = dict.fromkeys(self.shifts, 200.0)
        return previous_of(self.batches, self.gates, self.scale, self.shifts, self.bench.clock.now_ns(), lost)


@story
async def test_frame_that_joined_batch_is_planned_in_that_batch() -> None:
    """The frame's result is under way, and the batch takes as much longer."""
    (rung,) = (replace(one, usual_ms={1: 40.0, 2: 47.0}) for one in rungs_of(40))
    planned = Planned([Batch(20.0, None, (("a", 1),))], {"a": Shift(5, 0.0), "b": Shift(-2, 0.0)}, rung)
    planned.put("b", 1, rung.name)
    await planned.bench.pause(10)
    assert planned.previous()[0] == [Batch(20.0, None, (("a", 1), ("b", 3)))]
    await planned.bench.pause(15)
    (begun,) = planned.gates.begun()
    assert begun.end_ns - begun.start_ns == 47 * NS_PER_MS


@story
async def test_batch_that_began_late_is_planned_from_actual_start() -> None:
    """With the frames that came in time; and a batch yet to come from now on."""
    batches = [Batch(20.0, None, (("a", 1), ("b", 1))), Batch(60.0, None, (("a", 3), ("c", 3)))]
    shifts = {"a": Shift(5, 0.0), "b": Shift(-2, 0.0), "c": Shift(0, 0.0)}
    planned = Planned(batches, shifts, rungs_of(40)[0])
    assert planned.previous() == (batches, 0)
    await planned.bench.pause(15)
    frame = planned.put("a", 6)
    await planned.bench.pause(15)
    found, busy_ns = planned.previous()
    assert found == [Batch(24.0, None, (("a", 1),)), batches[1]]
    assert planned.scale.ms(busy_ns) == pytest.approx(64.0)
    await planned.bench.pause(50)
    planned.bench.queue.scheduler.leave(frame)
    assert planned.previous() == ([Batch(80.0, None, (("a", 3), ("c", 3)))], 0)
    await planned.bench.pause(200)
    assert planned.previous() == ([], 0)
