"""Slow chores: what is old goes, what is new stays, and the scheduler starts and stops with the box."""

import asyncio
import datetime
from pathlib import Path

from appliance.domain.errors import UnknownJob
from appliance.domain.jobs import ImportRequest
from appliance.domain.states import JobState
from appliance.modelstore.store.housekeeping import Housekeeping
from tests.modelstore.boxes import parts


def test_old_jobs_are_forgotten(tmp_path: Path) -> None:
    """A job that ended 31 days ago is dropped, one that ended 29 days ago is kept, and an unfinished one for ever."""

    async def story() -> None:
        async with parts(tmp_path / "state", runs=False) as box:
            for name in ("old", "new", "open"):
                await box.store.imports.accept(name, ImportRequest("default", name, "unused"))
            await box.store.imports.withdraw("old", "done with", JobState.FAILED)
            box.clock.now += datetime.timedelta(days=2)
            await box.store.imports.withdraw("new", "done with", JobState.FAILED)
            box.clock.now += datetime.timedelta(days=29)
            await Housekeeping(box.store, box.uploads, jobs_kept_days=30).forget_jobs()
            assert (await box.store.jobs.get("new")).state is JobState.FAILED
            assert (await box.store.jobs.get("open")).state is JobState.QUEUED
            try:
                await box.store.jobs.get("old")
            except UnknownJob:
                return
            raise AssertionError("the old job is still there")

    asyncio.run(story())


def test_idle_uploads_are_swept(tmp_path: Path) -> None:
    """An upload without a byte for a day goes."""

    async def story() -> None:
        async with parts(tmp_path / "state", runs=False) as box:
            await box.uploads.create("default", 100)
            chores = Housekeeping(box.store, box.uploads, jobs_kept_days=30)
            chores.start()
            box.clock.let_pass(hours=25)
            await chores.sweep_uploads()
            chores.stop()
            assert await box.uploads.uploads("default") == []

    asyncio.run(story())
