"""Jobs that many follow: one read serves all."""

import asyncio
import datetime
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from appliance.api.followed_jobs import READ_S, FollowedJobs
from appliance.clock import LoopClock
from appliance.domain.errors import UnknownJob
from appliance.domain.states import JobState
from appliance.runtime.telemetry import Telemetry
from appliance.wire.jobs import JobShape
from tests.fakes.clock import settle, story

AT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
FOLLOWERS = 350


def job(percent: float, state: JobState = JobState.RUNNING) -> JobShape:
    return JobShape(
        id="j",
        tenant="harbour",
        model="m",
        state=state,
        stage="int8",
        percent=percent,
        message="",
        error="",
        created_at=AT,
        updated_at=AT,
    )


class Box:
    """A job, how often it was read, and what each follower saw of it."""

    def __init__(self) -> None:
        self.telemetry = Telemetry(LoopClock())
        self.jobs = FollowedJobs(self.telemetry)
        self.now = job(0)
        self.reads = 0
        self.error: Exception | None = None

    async def read(self) -> JobShape:
        self.reads += 1
        await asyncio.sleep(0.001)  # noqa: TID251 - virtual time: a read takes a while
        if self.error is not None:
            raise self.error
        return self.now

    async def follow(self) -> AsyncIterator[JobShape]:
        async with aclosing(self.jobs.follow(self.now, self.read)) as changes:
            async for one in changes:
                if one is not None:
                    yield one

    async def seen(self) -> list[float]:
        return [one.percent async for one in self.follow()]

    def go_on(self, percent: float, state: JobState = JobState.RUNNING) -> None:
        self.now = job(percent, state)
        self.telemetry.emit("job progressed")


@story
async def test_event_of_a_job_with_many_followers_is_one_read() -> None:
    """All of them see each change, and the end."""
    box = Box()
    followers = [asyncio.create_task(box.seen()) for _ in range(FOLLOWERS)]
    await asyncio.sleep(READ_S / 2)  # noqa: TID251 - virtual time
    for percent in (10, 20):
        before = box.reads
        box.go_on(percent)
        await asyncio.sleep(READ_S / 4)  # noqa: TID251 - virtual time
        assert box.reads == before + 1
    box.go_on(100, JobState.DONE)
    assert await asyncio.gather(*followers) == FOLLOWERS * [[0, 10, 20, 100]]


@story
async def test_follower_that_comes_later_sees_the_job_as_the_others_do() -> None:
    """And a change that no event tells of, within a second; the job is read while somebody follows it."""
    box = Box()
    first = asyncio.create_task(box.seen())
    await settle()
    box.go_on(10)
    await asyncio.sleep(READ_S / 4)  # noqa: TID251 - virtual time
    second = asyncio.create_task(box.seen())
    await settle()
    box.now = job(30)
    await asyncio.sleep(2 * READ_S)  # noqa: TID251 - virtual time
    first.cancel()
    await asyncio.wait([first])
    box.go_on(100, JobState.FAILED)
    assert await second == [10, 30, 100]
    reads = box.reads
    await asyncio.sleep(3 * READ_S)  # noqa: TID251 - virtual time
    assert box.reads == reads


@story
async def test_failed_read_ends_the_following_of_all() -> None:
    """Who follows the job later has it read anew."""
    box = Box()
    followers = [asyncio.create_task(box.seen()) for _ in range(3)]
    await settle()
    box.error = UnknownJob(name="j")
    box.telemetry.emit("job progressed")
    for one in await asyncio.gather(*followers, return_exceptions=True):
        assert one is box.error
    box.error = None
    again = asyncio.create_task(box.seen())
    await settle()
    box.go_on(100, JobState.DONE)
    assert await again == [0, 100]


@story
async def test_following_ends_when_the_box_stops() -> None:
    box = Box()
    follower = asyncio.create_task(box.seen())
    await settle()
    box.telemetry.close()
    assert await follower == [0]


@pytest.mark.parametrize("state", [JobState.DONE, JobState.FAILED, JobState.CANCELLED])
@story
async def test_job_that_has_ended_is_told_without_a_read(state: JobState) -> None:
    box = Box()
    box.now = job(50, state)
    assert await box.seen() == [50]
    assert not box.reads
