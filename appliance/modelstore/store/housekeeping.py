"""Slow chores of the store, minutes to days apart: idle uploads are swept, old jobs forgotten.

A chore that fails is logged and tried again at its next time; one that is late (a suspended machine) runs once, not
once for every time missed.
"""

import datetime
from collections.abc import Awaitable, Callable

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from appliance.log import get as get_log
from appliance.modelstore.store.store import Store
from appliance.modelstore.store.uploads import Uploads

log = get_log("housekeeping")


class Housekeeping:
    """Starts with `start` on the running event loop, ends with `stop`."""

    def __init__(self, store: Store, uploads: Uploads, jobs_kept_days: int) -> None:
        self._store = store
        self._uploads = uploads
        self._jobs_kept = datetime.timedelta(days=jobs_kept_days)
        late = {"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        self._scheduler = AsyncIOScheduler(timezone=datetime.UTC, job_defaults=late)
        self._scheduler.add_job(self.sweep_uploads, "interval", hours=1, name="sweep uploads")
        self._scheduler.add_job(self.forget_jobs, "interval", days=1, name="forget old jobs")

    def every_night(self, chore: Callable[[], Awaitable[None]], name: str) -> None:
        """One more chore, at three in the morning UTC."""
        self._scheduler.add_job(chore, "cron", hour=3, name=name)

    def start(self) -> None:
        """Begin to run chores in the background."""
        self._scheduler.start()

    def stop(self) -> None:
        """No more chores; one that runs is cancelled."""
        self._scheduler.shutdown(wait=False)

    async def sweep_uploads(self) -> None:
        """Drop uploads that were idle for too long."""
        if swept := await self._uploads.sweep():
            log.info("uploads swept", count=len(swept))

    async def forget_jobs(self) -> None:
        """Drop jobs that ended long ago."""
        if count := await self._store.jobs.forget(self._store.clock.wall_now() - self._jobs_kept):
            log.info("jobs forgotten", count=count)
