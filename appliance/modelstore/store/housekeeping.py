"""Slow chores of the box, minutes to days apart, and when each ran last and runs next.

Chores run one after another. One that fails is logged, shown, and tried again at its next time; one that is late (a
suspended machine) runs once, not once for every time missed, and a nightly one that a box missed because it was off
runs some minutes after its start.
"""

import asyncio
import datetime
from collections.abc import Awaitable, Callable

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from appliance.clock import EPOCH
from appliance.domain.chores import ChoreRun, ChoreStatus
from appliance.domain.errors import ApplianceError, StorageFailed
from appliance.log import get as get_log
from appliance.modelstore.store.disk_use import DiskUse
from appliance.modelstore.store.json_file import JsonFile
from appliance.modelstore.store.store import Store
from appliance.modelstore.store.uploads import Uploads

NIGHTLY = "every night"
HOURLY = "every hour"
_FIRST_AT = datetime.time(3, 0)
"""UTC; the following ones five minutes apart, so that each is over when the next is due."""
_APART = datetime.timedelta(minutes=5)
_MISSED = datetime.timedelta(hours=25)
"""A nightly chore that ran longer ago was missed."""
_AGED_AT_ONCE = datetime.timedelta(days=3)
"""By how much more what is kept for some days ages from one run to the next: a clock that is years ahead for a night
must not have everything forgotten, and what a box that was off is late with it catches up.
"""
Chore = Callable[[], Awaitable[None]]
log = get_log("housekeeping")


class Housekeeping:
    """Starts with `start` on the running event loop, ends with `stop`."""

    def __init__(self, store: Store, uploads: Uploads, *, jobs_kept_days: int, audit_kept_days: int = 365) -> None:
        self._store = store
        self._uploads = uploads
        self._jobs_kept = datetime.timedelta(days=jobs_kept_days)
        self._audit_kept = datetime.timedelta(days=audit_kept_days)
        self._file = JsonFile(store.state_dir / "housekeeping.json")
        document = self._file.load()
        self._runs: dict[str, ChoreRun] = _runs(document)
        self._aged_to: dict[str, datetime.datetime] = _aged_to(document)
        self._chores: dict[str, tuple[str, Chore]] = {}
        self._turn = asyncio.Lock()
        self._running: str | None = None
        self.disk = DiskUse(store.state_dir)
        late = {"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        self._scheduler = AsyncIOScheduler(timezone=datetime.UTC, job_defaults=late)
        self.every_hour(self.sweep_uploads, "sweep uploads")
        self.every_hour(self.note_disk, "disk forecast")
        self.every_night(self.forget_jobs, "forget old jobs")
        self.every_night(self.forget_audit, "forget old audit entries")
        self.every_night(self.check_database, "check the database")

    def every_night(self, chore: Chore, name: str) -> None:
        """One more chore, some minutes after the one before."""
        nights = sum(every == NIGHTLY for every, _ in self._chores.values())
        first = datetime.datetime.combine(datetime.date(2026, 1, 1), _FIRST_AT)
        at = first + nights * _APART
        self._chores[name] = (NIGHTLY, chore)
        self._scheduler.add_job(self.run, "cron", [name], hour=at.hour, minute=at.minute, id=name)

    def every_hour(self, chore: Chore, name: str) -> None:
        """One more chore."""
        self._chores[name] = (HOURLY, chore)
        self._scheduler.add_job(self.run, "interval", [name], hours=1, id=name)

    def start(self) -> None:
        """Begin to run chores in the background."""
        self._scheduler.start()
        now = self._store.clock.wall_now()
        missed = [
            name
            for name, (every, _) in self._chores.items()
            if every == NIGHTLY and name in self._runs and now - self._runs[name].began_at > _MISSED
        ]
        for number, name in enumerate(missed, 1):
            self._scheduler.modify_job(name, next_run_time=now + number * _APART)

    def stop(self) -> None:
        """No more chores; one that runs is cancelled."""
        self._scheduler.shutdown(wait=False)

    def statuses(self) -> list[ChoreStatus]:
        """All chores by name."""
        found = []
        for name, (every, _) in sorted(self._chores.items()):
            job = self._scheduler.get_job(name)
            next_at = getattr(job, "next_run_time", None)
            found.append(ChoreStatus(name, every, self._runs.get(name), next_at, name == self._running))
        return found

    async def run(self, name: str) -> None:
        """Run a chore in its turn, and remember what came of it."""
        _, chore = self._chores[name]
        async with self._turn:
            clock = self._store.clock
            began_at, began_ns = clock.wall_now(), clock.now_ns()
            error = ""
            self._running = name
            try:
                await chore()
            except Exception as caught:
                error = str(caught) if isinstance(caught, ApplianceError) else repr(caught)
                log.warning("a chore failed", name=name, reason=error)
            finally:
                self._running = None
            self._runs[name] = ChoreRun(began_at, (clock.now_ns() - began_ns) / 1e9, error)
            await asyncio.to_thread(self._file.save, _document(self._runs, self._aged_to))

    # -- the store's own chores ----------------------------------------------------------------------------------------

    async def sweep_uploads(self) -> None:
        """Drop uploads that were idle for too long."""
        if swept := await self._uploads.sweep():
            log.info("uploads swept", count=len(swept))

    async def forget_jobs(self) -> None:
        """Drop jobs that ended long ago."""
        if count := await self._store.jobs.forget(self._aged("forget old jobs") - self._jobs_kept):
            log.info("jobs forgotten", count=count)

    async def forget_audit(self) -> None:
        """Drop entries of the audit that are older than they are wanted."""
        if count := await self._store.audit.forget(self._aged("forget old audit entries") - self._audit_kept):
            log.info("audit entries forgotten", count=count)

    def _aged(self, name: str) -> datetime.datetime:
        """The time by which a chore forgets: now, but only a little later than the latest one so far."""
        now = self._store.clock.wall_now()
        if now < EPOCH:
            return now
        latest = self._aged_to.get(name, now)
        aged = min(now, latest + _AGED_AT_ONCE)
        self._aged_to[name] = max(latest, aged)  # never back: else a clock once behind would take years to catch up
        return aged

    async def check_database(self) -> None:
        """Read the whole database. Raises: StorageFailed where it is damaged."""
        found = await self._store.check()
        if found != "ok":
            raise StorageFailed(reason=f"the database is damaged: {found}")

    async def note_disk(self) -> None:
        """Take a sample for the forecast of the disk."""
        await asyncio.to_thread(self.disk.note, self._store.clock.wall_now())


def _runs(document: dict[str, object]) -> dict[str, ChoreRun]:
    try:
        return {name: _run(row) for name, row in document.items() if isinstance(row, dict)}
    except (KeyError, TypeError, ValueError):
        return {}


def _run(row: dict[str, object]) -> ChoreRun:
    at = datetime.datetime.fromisoformat(str(row["began_at"])).astimezone(datetime.UTC)
    return ChoreRun(at, float(str(row["took_s"])), str(row["error"]))


def _aged_to(document: dict[str, object]) -> dict[str, datetime.datetime]:
    """Up to which time each chore has forgotten; of files that do not say so, when it ran last."""
    try:
        found = {
            name: datetime.datetime.fromisoformat(str(row.get("aged_to", row["began_at"]))).astimezone(datetime.UTC)
            for name, row in document.items()
            if isinstance(row, dict)
        }
        return {name: at for name, at in found.items() if at >= EPOCH}
    except (KeyError, TypeError, ValueError):
        return {}


def _document(runs: dict[str, ChoreRun], aged_to: dict[str, datetime.datetime]) -> dict[str, object]:
    return {
        name: {
            "began_at": run.began_at.isoformat(),
            **({"aged_to": aged_to[name].isoformat()} if name in aged_to else {}),
            "took_s": run.took_s,
            "error": run.error,
        }
        for name, run in runs.items()
    }
