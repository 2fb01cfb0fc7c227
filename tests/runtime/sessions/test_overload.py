"""One tenant asks for ten times what the box can do, in every way at once; what another one was promised holds. In
virtual time, by counts.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from appliance.domain.catalogue import TaskKind, TaskSpec
from appliance.domain.errors import ApplianceError
from appliance.domain.session import LatencyPromise
from appliance.runtime.pipelines.frame import FrameCall
from appliance.runtime.pipelines.live import LivePipeline
from appliance.runtime.pipelines.streaming import PipelineStreams
from appliance.tasks.base import Media
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.runtime.pipelines.whole import WholeBox
from tests.runtime.sessions.fleet import Fleet, steady

pytestmark = pytest.mark.gate("a whole engine for minutes of virtual time")

FIND = {"fine": Cost(run_ms=20), "coarse": Cost(run_ms=10)}
READ = {"fine": Cost(run_ms=8), "coarse": Cost(run_ms=4)}
Ask = Callable[[], Coroutine[Any, Any, object]]
SLOW = {"v": Cost(run_ms=200)}
WORKERS = 2
OBJECTS = 2


class Crowded:
    """A box on which tenant `t` was promised something, and tenant `noise` asks for whatever it can."""

    def __init__(self) -> None:
        self.whole = WholeBox(FIND, READ, workers=WORKERS)
        self.whole.objects = OBJECTS
        box = self.box = self.whole.box
        box.add(FIND, name="find", tenant="noise", task=TaskSpec(TaskKind.OBJECT_DETECTION))
        box.add(READ, name="read", tenant="noise", task=TaskSpec(TaskKind.IMAGE_CLASSIFICATION))
        box.add(SLOW, name="slow", tenant="noise")
        self.signs: LivePipeline = self.whole.add(slo_ms=400.0)
        self.noise: LivePipeline = self.whole.add("loud", slo_ms=400.0, tenant="noise")
        self.fleet = Fleet(bench=box, pipelines=PipelineStreams(self.whole.pipelines, box.core.catalogue))
        self.gate = self.fleet.add({320: Cost(run_ms=13), 160: Cost(run_ms=6)})
        self.theirs = self.fleet.add({320: Cost(run_ms=13), 160: Cost(run_ms=6)}, tenant="noise")
        self.ends: Counter[str] = Counter()
        """Of what the crowd asked, by way and end."""
        self._under_way: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        async with self.whole.working(), self.fleet.planned():
            yield

    async def flood(self, way: str, ask: Ask, rps: float, seconds: float) -> None:
        """Ask at an even rate, whatever is answered."""
        for _ in range(int(rps * seconds)):
            task = asyncio.create_task(self._one(way, ask))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            await self.box.pause(1000.0 / rps)

    async def over(self) -> None:
        """All that was asked has ended."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _one(self, way: str, ask: Ask) -> None:
        try:
            await ask()
            self.ends[f"{way} answered"] += 1
        except ApplianceError as error:
            self.ends[f"{way} {type(error).__name__}"] += 1

    async def frame(self) -> None:
        call = FrameCall("noise", "r", self.box.clock.now_ns())
        await self.whole.pipelines.predict(self.noise.pipeline, Media(b""), call)

    async def call(self, application: str, within_ms: float | None) -> None:
        await self.box.infer(application=f"noise/{application}", tenant="noise", within_ms=within_ms)


@pytest.mark.parametrize(
    "within_ms", [None, pytest.param(300.0, marks=pytest.mark.nightly("the same with a deadline"))]
)
@story
async def test_promises_hold_beside_flood_of_other_tenant(within_ms: float | None) -> None:
    """Two sessions, one of an application and one of a pipeline: every frame that they send is answered in time, while
    the other tenant's plain calls, long runs, frames and session together ask for ten times what the processors do.
    """
    crowd = Crowded()
    fleet = crowd.fleet
    async with crowd.working():
        streamed = [
            fleet.stream(await fleet.join(crowd.gate, LatencyPromise(300.0, 5.0), fps=5.0, mbps=20), steady(20)),
            fleet.stream(
                await fleet.join_pipeline(crowd.signs.pipeline, LatencyPromise(500.0, 5.0), fps=5.0), steady(20)
            ),
        ]
        loud = fleet.stream(
            await fleet.join(crowd.theirs, LatencyPromise(300.0, 2.0), fps=60.0, mbps=20),
            steady(20),
            is_greedy=True,
        )
        await fleet.pass_s(5)
        before = [(device.live.counts.sent, device.live.counts.answered) for device in streamed]
        seconds = 10.0
        ways: list[tuple[str, Ask, float]] = [
            ("call", lambda: crowd.call("find", within_ms), 400.0),
            ("slow", lambda: crowd.call("slow", within_ms), 40.0),
            ("frame", crowd.frame, 200.0),
        ]
        asked_ms = 20.0 * 400 + 200.0 * 40 + (20.0 + OBJECTS * 8.0) * 200
        assert asked_ms >= 10 * WORKERS * 1000.0
        await asyncio.gather(*(crowd.flood(way, ask, rps, seconds) for way, ask, rps in ways))
        for device, (sent, answered) in zip(streamed, before, strict=True):
            counts = device.live.counts
            assert counts.sent - sent > 4.5 * seconds, (device.told, device.live.state, device.live.reason)
            assert (counts.late, counts.lost, counts.dropped) == (0, 0, 0), (counts, crowd.ends)
            assert counts.answered - answered >= counts.sent - sent - 3, counts
        assert crowd.ends["call answered"], "it has what the others leave"
        assert loud.live.counts.sent
        await crowd.over()
        await fleet.pass_s(1)
        for device in (*streamed, loud):
            fleet.disconnect(device)
            await fleet.sessions.end(device.live)
        await fleet.pass_s(1)
    crowd.box.assert_quiet()
    assert sum(crowd.ends.values()) == int(seconds * 400) + int(seconds * 40) + int(seconds * 200)
