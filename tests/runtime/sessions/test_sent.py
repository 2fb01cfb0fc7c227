"""Plans are made with the bytes that pictures really have, whether or not their heads say a size."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from appliance.domain.errors import FrameDropped
from appliance.domain.session import FrameHead, LatencyPromise
from appliance.domain.states import SessionState
from appliance.runtime.sessions.live import LiveSession
from appliance.tasks.base import Media
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.runtime.sessions.fleet import PICTURE, Fleet, box_with

COSTS = {640: Cost(run_ms=30), 512: Cost(run_ms=24), 384: Cost(run_ms=18), 256: Cost(run_ms=12), 128: Cost(run_ms=6)}
PROMISE = LatencyPromise(160.0, 5.0)


def jpeg(side: int, count: int) -> bytes:
    """As many bytes, that begin as a JPEG of so many pixels."""
    return (b"\xff\xd8\xff\xc0" + struct.pack(">HBHHB", 8, 8, side * 3 // 4, side, 1) + b"\xff\xda\0\2").ljust(count)


Picture = Callable[[LiveSession], bytes]


def as_it_is(side: int, count: int) -> Picture:
    """A client that posts its camera's pictures, whatever its plan asks for."""
    return lambda live: jpeg(side, count)


def scaled(*, is_jpeg: bool) -> Picture:
    """A client that posts the size that its plan asks for, with three times the usual bytes, as JPEG or as something
    that says no size.
    """

    def picture(live: LiveSession) -> bytes:
        size = 640 if live.plan is None else live.plan.size or 640
        count = int(3 * 53_248 * (size / 640) ** 1.64)
        return jpeg(size, count) if is_jpeg else PICTURE.ljust(count)

    return picture


@asynccontextmanager
async def session() -> AsyncIterator[tuple[Fleet, LiveSession]]:
    async with box_with(COSTS) as (fleet, gate):
        yield fleet, await fleet.join(gate, PROMISE, fps=5.0, mbps=8.0)


async def post(fleet: Fleet, live: LiveSession, picture: Picture, count: int, *, states_size: bool = False) -> int:
    """Frames as plain requests at 8 Mbit/s, five a second; how many of them were answered in time."""
    answered, first = live.counts.answered, live.counts.sent
    for number in range(first, first + count):
        body = picture(live)
        now_ns = fleet.clock.now_ns()
        size = 1920 if states_size else None
        with suppress(FrameDropped):
            frame = fleet.sessions.frame_begins(live, FrameHead(number, now_ns, None, None, len(body), size))
            await fleet.pass_s(len(body) * 1e-6)
            frame.received(body)
            await frame.answer(Media(PICTURE, "application/json"), f"r{number}")
        await fleet.clock.sleep_until_ns(now_ns + 200_000_000)
    return live.counts.answered - answered


@pytest.mark.parametrize("states_size", [True, False])
@story
async def test_session_with_pictures_too_large_for_link_waits(states_size: bool) -> None:
    """300 kB at 8 Mbit/s take 300 ms, whichever variant is to answer within 160."""
    async with session() as (fleet, live):
        await post(fleet, live, as_it_is(1920, 300_000), 12, states_size=states_size)
        assert live.state is SessionState.WAITING
        assert live.reason.startswith("link")


@pytest.mark.parametrize(
    ("picture", "states_size"),
    [
        (as_it_is(1920, 100_000), True),
        (as_it_is(1920, 100_000), False),
        (scaled(is_jpeg=True), False),
        (scaled(is_jpeg=False), False),
    ],
    ids=["as it is", "as it is, unsaid", "scaled, unsaid", "scaled, of no size"],
)
@story
async def test_session_with_large_pictures_gets_variant_that_link_carries(picture: Picture, states_size: bool) -> None:
    """100 kB at 8 Mbit/s take 100 ms of 160, whatever is asked for: 640 takes too long beside that, 384 does not. Three
    times the usual bytes would take 160 ms at 640.
    """
    async with session() as (fleet, live):
        await post(fleet, live, picture, 20, states_size=states_size)
        assert live.state is SessionState.SERVED
        assert live.variant in ("v384", "v256")
        assert await post(fleet, live, picture, 20, states_size=states_size) == 20


@story
async def test_session_with_pictures_too_large_is_served_once_smaller() -> None:
    """The device goes on to post while it waits: the heads of its frames are enough."""
    async with session() as (fleet, live):
        await post(fleet, live, as_it_is(1920, 300_000), 12)
        assert live.state == "waiting"
        await post(fleet, live, as_it_is(320, 20_000), 60)
        assert live.state == "served"
        assert await post(fleet, live, as_it_is(320, 20_000), 10) == 10


@story
async def test_session_of_application_without_sizes_is_planned_by_own_bytes() -> None:
    """Beside three that send next to nothing, a session whose frames take 300 ms is not served by the mean."""
    fleet = Fleet()
    application = fleet.bench.add({"quick": Cost(run_ms=5), "slow": Cost(run_ms=30)}, name="any")
    async with fleet.working():
        *small, large = [await fleet.join(application, PROMISE, fps=5.0, mbps=8.0) for _ in range(4)]
        for _ in range(5):
            async with asyncio.TaskGroup() as posting:
                for live in small:
                    posting.create_task(post(fleet, live, lambda live: PICTURE.ljust(2_000), 4))
                posting.create_task(post(fleet, large, lambda live: PICTURE.ljust(300_000), 4))
        assert [live.state for live in small] == [SessionState.SERVED] * 3
        assert large.state is SessionState.WAITING
        assert large.reason.startswith("link")
