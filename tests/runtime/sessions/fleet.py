"""Devices with sessions on a whole engine, in virtual time: links that carry so many bits, cameras, and no tracker."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.catalogue import Application
from appliance.domain.errors import CreditExceeded, FrameDropped, PromiseNotPossible
from appliance.domain.pipeline import Pipeline
from appliance.domain.session import (
    AccuracyPromise,
    DeviceReport,
    FrameHead,
    LatencyPromise,
    Notice,
    NoticeKind,
    Promise,
)
from appliance.domain.states import SessionState
from appliance.runtime.ports import StreamedPipelines
from appliance.runtime.serving.predict import Predictor
from appliance.runtime.sessions.composition import SessionPorts, make_sessions
from appliance.runtime.sessions.deciding import Decisions
from appliance.runtime.sessions.limits import Limits
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.orders import JoinOrder
from appliance.tasks.base import Media, TokenOrder, TokenRows
from tests.fakes.engine import EngineBench
from tests.fakes.media import FakeMedia
from tests.fakes.processor import Cost

PICTURE = b'{"inputs": {"x": [1.0]}}'
BYTES_PER_PIXEL = 0.13
FRAMES_END_S = 600.0
"""Virtual time within which the frames under way are answered when devices leave."""
Link = Callable[[float], float]
"""Seconds since the device's start → bits in a second."""


def steady(mbps: float) -> Link:
    """Return a link of the same rate at all times."""
    return lambda _: mbps * 1e6


class NoTexts:
    """Port `TextReader` for tests that send no text."""

    async def tokenize(
        self, order: TokenOrder, build_id: str, tenant: str, on_time: Callable[[int], None] = lambda ns: None
    ) -> TokenRows:
        raise AssertionError("there is no tokenizer")


@dataclass
class Device:
    """A device with what it sent and was told."""

    live: LiveSession
    notices: list[Notice] = field(default_factory=list)
    captured: int = 0
    sent: int = 0
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def told(self) -> Counter[NoticeKind]:
        """Number of notices of each kind."""
        return Counter(notice.kind for notice in self.notices)

    @property
    def news(self) -> list[Notice]:
        """Notices other than new plans."""
        return [notice for notice in self.notices if notice.kind is not NoticeKind.PLAN]


class Fleet:
    """A bench with sessions. To be made inside a running loop."""

    def __init__(
        self,
        workers: int = 1,
        budget: int = 1000,
        decode_ms: float = 1.0,
        *,
        bench: EngineBench | None = None,
        pipelines: StreamedPipelines | None = None,
        offload: str = "earliest-due",
    ) -> None:
        """`offload`: the policy of promises of accuracy. `pipelines`: that sessions may name, on the same `bench`."""
        self.bench = bench = bench or EngineBench(budget, workers=workers, queue_len=500, queue_total=1000)
        self.clock = bench.clock
        numbers = count(1)
        predictor = Predictor(
            clock=bench.clock,
            catalogue=bench.catalogue,
            engine=bench.engine,
            sequences=bench.sequences,
            media=FakeMedia(bench.clock, decode_ms),
            texts=NoTexts(),
            asset_path=Path,
        )
        ports = SessionPorts(
            clock=bench.clock,
            catalogue=bench.catalogue,
            engine=bench.engine,
            predictor=predictor,
            memory=bench.memory,
            account=bench.core.account,
            residency=bench.core.residency,
            telemetry=bench.telemetry,
            decisions=bench.decisions,
            deciding=Decisions(
                bench.clock, "exchange", offload, in_place_clients_max=10**6, spent_ns=bench.clock.now_ns
            ),
            pipelines=pipelines,  # type: ignore[arg-type]  # most sessions name none
            new_id=lambda: f"s{next(numbers):04}",
        )
        self.sessions = make_sessions(ports, Limits())
        self.devices: list[Device] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """With workers, residency and planners at work; devices leave at the end."""
        async with self.bench.working(residency=True), self.planned():
            yield

    @asynccontextmanager
    async def planned(self) -> AsyncIterator[None]:
        """As `working`, on a bench that is at work. Frames that are under way when devices leave are answered first."""
        loops = asyncio.create_task(self.sessions.run())
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            ends = list(await asyncio.gather(*self._tasks, return_exceptions=True))
            async with asyncio.timeout(FRAMES_END_S):
                while any(device.live.counts.under_way for device in self.devices):
                    await self.bench.pause(10)
            loops.cancel()
            ends += await asyncio.gather(loops, return_exceptions=True)
            assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ends), ends

    def add(
        self, sizes: Mapping[int, Cost], *, name: str = "gate", tenant: str = "t", accuracies: tuple[float, ...] = ()
    ) -> Application:
        """An application with a variant for each picture size, the first the most accurate: 90, 80 ... points."""
        application = self.bench.add({f"v{size}": cost for size, cost in sizes.items()}, name=name, tenant=tenant)
        model = self.bench.catalogue.model_of(application)
        rungs = []
        for at, (variant, size) in enumerate(zip(model.variants, sizes, strict=True)):
            accuracy = variant.accuracy
            if accuracies and accuracy is not None:
                accuracy = replace(accuracy, points=accuracies[at])
            rungs.append(replace(variant, height=size, width=size, accuracy=accuracy))
        self.bench.catalogue.put_model(replace(model, variants=tuple(rungs)))
        return application

    async def join(
        self,
        application: Application,
        promise: Promise,
        *,
        fps: float = 30.0,
        mbps: float | None = None,
        rtt_ms: float = 10.0,
        tenant: str | None = None,
        wait: bool = False,
        weight: float = 1.0,
    ) -> LiveSession:
        """Join a session. Raises: PromiseNotPossible."""
        order = JoinOrder(
            tenant or application.tenant,
            "key",
            application.id,
            fps,
            promise,
            weight=weight,
            wait=wait,
            rtt_ms=rtt_ms,
            uplink_bps=None if mbps is None else mbps * 1e6,
        )
        return await self.sessions.join(order)

    async def camera(
        self,
        application: Application,
        promise: Promise,
        *,
        mbps: float = 20.0,
        link: Link | None = None,
        rtt_ms: float = 10.0,
        drop_rate: float | None = None,
        is_greedy: bool = False,
        **more: Any,
    ) -> LiveSession:
        """A session whose device sends from now on, over a link of `mbps` unless it is told otherwise.

        Raises: PromiseNotPossible.
        """
        live = await self.join(application, promise, mbps=mbps, rtt_ms=rtt_ms, **more)
        self.stream(live, link or steady(mbps), rtt_ms=rtt_ms, drop_rate=drop_rate, is_greedy=is_greedy)
        return live

    async def cameras(
        self, count: int, application: Application, promise: Promise, *, every_s: float = 0.0, **more: Any
    ) -> list[LiveSession]:
        """So many sessions whose devices send, one after the other. Raises: PromiseNotPossible."""
        lives = []
        for _ in range(count):
            lives.append(await self.camera(application, promise, **more))
            await self.pass_s(every_s)
        return lives

    async def fill(
        self, application: Application, promise: Promise, *, every_s: float = 0.0, most: int = 60, **more: Any
    ) -> tuple[list[LiveSession], PromiseNotPossible]:
        """Sessions whose devices send, as many as are let in; and the refusal of the one after them."""
        lives: list[LiveSession] = []
        while len(lives) < most:
            try:
                lives.append(await self.camera(application, promise, **more))
            except PromiseNotPossible as refusal:
                return lives, refusal
            await self.pass_s(every_s)
        raise AssertionError("no session was refused")

    async def refused(self, application: Application, promise: Promise, **more: Any) -> PromiseNotPossible:
        """Return why a session is not let in."""
        with pytest.raises(PromiseNotPossible) as caught:
            await self.join(application, promise, **more)
        return caught.value

    async def join_pipeline(
        self, pipeline: Pipeline, promise: Promise, *, fps: float = 15.0, mbps: float = 20.0, wait: bool = False
    ) -> LiveSession:
        """Join a session whose frames go through a pipeline. Raises: PromiseNotPossible."""
        order = JoinOrder(
            pipeline.tenant,
            "key",
            "",
            fps,
            promise,
            wait=wait,
            rtt_ms=10.0,
            uplink_bps=mbps * 1e6,
            pipeline_id=pipeline.id,
        )
        return await self.sessions.join(order)

    def stream(
        self,
        live: LiveSession,
        link: Link,
        *,
        rtt_ms: float = 10.0,
        drop_rate: float | None = None,
        from_frame: int = 0,
        is_greedy: bool = False,
    ) -> Device:
        """Let the session's device send from now on, as its plans say; a greedy device sends every frame."""
        device = Device(live)
        self.devices.append(device)
        for work in (
            self._camera(device, link, rtt_ms, drop_rate, from_frame, is_greedy=is_greedy),
            self._listen(device),
        ):
            task = asyncio.create_task(work)
            device.tasks.append(task)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return device

    @asynccontextmanager
    async def asked(self, application: Application, *, every_ms: float = 0.0) -> AsyncIterator[None]:
        """Let a caller without a session send one request after the other meanwhile."""

        async def ask() -> None:
            while True:
                await self.bench.infer(application=application.id, tenant=application.tenant)
                await self.bench.pause(every_ms)

        task = asyncio.create_task(ask())
        try:
            yield
        finally:
            task.cancel()

    @contextmanager
    def deciding(
        self, name: Literal["adapt", "offloads"], meanwhile: Callable[[], Awaitable[object]]
    ) -> Iterator[None]:
        """What happens meanwhile between each decision of a planner and its answer."""
        planners = self.sessions.planning.deciding
        decide = getattr(planners, name)

        async def slowly(problem: object) -> object:
            plan = await decide(problem)
            await meanwhile()
            return plan

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(planners, name, slowly)
            yield

    @property
    def states(self) -> list[SessionState]:
        """States of all sessions, in the order in which their devices began to send."""
        return [device.live.state for device in self.devices]

    @property
    def kept_share(self) -> float:
        """Share of the windows of all devices in which the promise was kept."""
        windows = sum(device.live.windows for device in self.devices)
        return sum(device.live.kept for device in self.devices) / windows if windows else 0.0

    def disconnect(self, device: Device) -> None:
        """Break the device's line: what was on its way is lost."""
        for task in device.tasks:
            task.cancel()

    async def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        await self.bench.pause(seconds * 1000)

    async def _listen(self, device: Device) -> None:
        with self.sessions.subscribe(device.live) as notices:
            async for notice in notices:
                device.notices.append(notice)

    async def _camera(
        self, device: Device, link: Link, rtt_ms: float, drop_rate: float | None, from_frame: int, *, is_greedy: bool
    ) -> None:
        live, fps = device.live, device.live.session.fps
        start_ns = free_ns = self.clock.now_ns()
        last = -(10**6)
        with self.sessions.attached(live):
            for number in count(from_frame):
                captured_ns = start_ns + int((number - from_frame) * NS_PER_S / fps)
                await self.clock.sleep_until_ns(captured_ns)
                device.captured += 1
                if live.state is SessionState.ENDED:
                    return
                plan = live.plan
                if plan is None or free_ns - captured_ns > 1.5 * NS_PER_S / fps:
                    continue
                ahead = [one for one in plan.frames if one >= number]
                due = number in plan.frames if ahead else number - last >= plan.interval
                if not due and not is_greedy:
                    continue
                last = number
                size = plan.size or 300
                body = PICTURE.ljust(int(BYTES_PER_PIXEL * size**2))
                begin_ns = max(captured_ns, free_ns)
                took_s = len(body) * 8 / link((begin_ns - start_ns) / NS_PER_S)
                free_ns = begin_ns + int(took_s * NS_PER_S)
                head_ns = begin_ns + int(rtt_ms / 2 * NS_PER_MS)
                report = DeviceReport(skipped=device.captured - device.sent - 1, rtt_ms=rtt_ms, drop_rate=drop_rate)
                device.sent += 1
                sending = self._send(live, number, size, body, captured_ns, head_ns, free_ns - begin_ns, report)
                task = asyncio.create_task(sending)
                device.tasks.append(task)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _send(
        self,
        live: LiveSession,
        number: int,
        size: int,
        body: bytes,
        captured_ns: int,
        head_ns: int,
        transfer_ns: int,
        report: DeviceReport,
    ) -> None:
        await self.clock.sleep_until_ns(head_ns)
        head = FrameHead(number, self.clock.now_ns(), captured_ns, None, len(body), size, None, report)
        try:
            frame = self.sessions.frame_begins(live, head)
        except (FrameDropped, CreditExceeded):
            return
        try:
            await self.clock.sleep_until_ns(head_ns + transfer_ns)
        except asyncio.CancelledError:
            frame.lost()
            raise
        frame.received(body)
        await frame.answer(Media(body, "application/json"), f"{live.id}-{number}")


@asynccontextmanager
async def box_with(
    sizes: Mapping[int, Cost], *, tenant: str = "t", accuracies: tuple[float, ...] = (), **more: Any
) -> AsyncIterator[tuple[Fleet, Application]]:
    """A fleet at work, and an application with a variant for each picture size."""
    fleet = Fleet(**more)
    application = fleet.add(sizes, tenant=tenant, accuracies=accuracies)
    async with fleet.working():
        yield fleet, application


def promise_of(offer: Mapping[str, object]) -> Promise:
    """Return the promise that an offer's fields, as posted, describe."""
    if offer["kind"] == "accuracy":
        return AccuracyPromise(float(str(offer["drop_max"])))
    return LatencyPromise(float(str(offer["slo_ms"])), float(str(offer["rate_rps"])))
