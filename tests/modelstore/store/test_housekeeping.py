"""Slow chores: what is old goes, what is new stays, and the scheduler starts and stops with the box."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from appliance.domain.audit import AuditRecord
from appliance.domain.errors import UnknownJob
from appliance.domain.jobs import ImportRequest
from appliance.domain.states import JobState
from appliance.modelstore.store.housekeeping import Housekeeping
from tests.modelstore.boxes import Parts, parts

pytestmark = pytest.mark.anyio


def test_housekeeping_forgets_old_jobs(tmp_path: Path) -> None:
    """A job that ended 31 days ago is dropped, one that ended 29 days ago is kept, and an unfinished one for ever."""

    async def story() -> None:
        async with parts(tmp_path / "state", runs=False) as box:
            for name in ("old", "new", "open"):
                await box.store.imports.accept(name, ImportRequest("default", name, "unused"))
            await box.store.imports.withdraw("old", "done with", JobState.FAILED)
            box.clock.now += timedelta(days=2)
            await box.store.imports.withdraw("new", "done with", JobState.FAILED)
            box.clock.now += timedelta(days=29)
            await Housekeeping(box.store, box.uploads, jobs_kept_days=30).forget_jobs()
            assert (await box.store.jobs.get("new")).state is JobState.FAILED
            assert (await box.store.jobs.get("open")).state is JobState.QUEUED
            try:
                await box.store.jobs.get("old")
            except UnknownJob:
                return
            raise AssertionError("the old job is still there")

    asyncio.run(story())


async def kept(box: Parts) -> list[datetime]:
    """When what is in the audit happened."""
    return [one.at for one in await box.store.audit.page()]


async def test_housekeeping_with_clock_years_ahead_keeps_audit_entries(box: Parts) -> None:
    """One night of it, also after a restart, forgets at most what three days more would; nor does it take years to
    catch up with a clock that was behind.
    """
    right = box.clock.now
    entry = AuditRecord(right, "default", "Delete a model", "DELETE", "/v1/models/m")
    await box.store.audit.add([entry, replace(entry, at=right - timedelta(days=370))])
    for days in (-20_000, 0, -20_000, 0):
        box.clock.now = right + timedelta(days=days)
        await Housekeeping(box.store, box.uploads, jobs_kept_days=30).run("forget old audit entries")
    assert await kept(box) == [right]
    box.clock.now = right + timedelta(days=4000)
    await Housekeeping(box.store, box.uploads, jobs_kept_days=30).run("forget old audit entries")
    assert await kept(box) == [right]
    chores = Housekeeping(box.store, box.uploads, jobs_kept_days=30)
    for _ in range(122):  # 366 days in steps of three
        await chores.forget_audit()
    assert await kept(box) == []


async def test_housekeeping_sweeps_idle_uploads(box: Parts) -> None:
    """An upload without a byte for a day goes."""
    await box.uploads.create("default", 100)
    chores = Housekeeping(box.store, box.uploads, jobs_kept_days=30)
    chores.start()
    box.clock.let_pass(hours=25)
    await chores.sweep_uploads()
    chores.stop()
    assert await box.uploads.uploads("default") == []
