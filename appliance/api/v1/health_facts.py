"""Looks at the running box: gathers the facts that its health is judged by, and tells events and receivers of
notifications what has changed.
"""

import asyncio
import datetime
import shutil
from collections.abc import AsyncIterator, Awaitable, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

from appliance.api.box import RunningBox
from appliance.api.v1.promises import never_fits_warnings, out_of_reach
from appliance.clock import EPOCH, NS_PER_MS, NS_PER_S, others_first
from appliance.domain.access import EXPIRES_SOON, KeyRecord
from appliance.domain.backups import BackupState
from appliance.domain.catalogue import Model, Variant
from appliance.domain.errors import ApplianceError, Unavailable
from appliance.domain.health.conditions import Check, Subject, SubjectKind
from appliance.domain.health.facts import (
    ApplicationFacts,
    BoxFacts,
    CertificateFacts,
    DiskFacts,
    ImportFacts,
    KeyFacts,
    MemoryFacts,
    PipelineFacts,
    ProcessorFacts,
    ReceiverFacts,
    SessionFacts,
    VariantFacts,
)
from appliance.domain.health.recent import Share
from appliance.domain.states import SessionState, VariantState
from appliance.log import get as get_log
from appliance.runtime.residency.account import MemoryAccount

T = TypeVar("T")
log = get_log("health")
LOOK_EVERY_S = 10
FAILED_IMPORTS_TOLD = datetime.timedelta(days=1)
EXPIRED_KEYS_TOLD = datetime.timedelta(days=30)
BACKUP_AGE_MAX = datetime.timedelta(hours=36)
USES_SHOWN_MAX = 100
"""Keys of which it is looked up when they were used last."""
_STEP = 500
"""Applications or figures that are looked at before others have their turn."""


async def watch(box: RunningBox) -> None:
    """Look again and again, so that events tell of what begins and ends."""
    while True:
        await box.clock.sleep_until_ns(box.clock.now_ns() + LOOK_EVERY_S * NS_PER_S)
        try:
            await look(box)
        except Exception:  # the watch goes on: what is looked at is the machine's
            log.exception("the health of the box could not be looked at")


async def look(box: RunningBox) -> tuple[Check, ...]:
    """Return all checks of the box as it is now."""
    one_look = _Look(box)
    facts = await one_look.facts()
    box.health.forget_but(one_look.counted)
    checks, changes = box.health.judged(facts)
    for event, one in changes:
        box.telemetry.emit(
            event,
            tenant=one.subject.tenant,
            condition=one.trouble.value,
            severity=one.severity.value,
            subject=one.subject.kind.value,
            name=one.subject.name,
            text=one.text,
            detail=one.detail,
        )
    await box.notifications.update(one for check in checks for one in check.conditions)
    return checks


async def _in_steps(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items, in steps between which other work on the event loop goes on."""
    for place, item in enumerate(items, 1):
        yield item
        if place % _STEP == 0:
            await others_first()


class _Look:
    """One look. Event-loop thread only."""

    def __init__(self, box: RunningBox) -> None:
        self._box = box
        self.counted: set[Hashable] = set()
        """What has counts of late."""

    def _lately(self, what: Hashable, counted: int, kept: int) -> Share:
        self.counted.add(what)
        return self._box.health.lately(what, self._box.clock.now_ns() // NS_PER_S, Share(counted, kept))

    async def facts(self) -> BoxFacts:
        """Gather what the box is judged by; what cannot be looked at is `unseen`."""
        box, now = self._box, self._box.clock.wall_now()
        unseen: dict[str, str] = {}

        async def looked(check: str, look: Awaitable[T], otherwise: T) -> T:
            try:
                return await look
            except (ApplianceError, OSError) as error:
                unseen[check] = str(error)
                return otherwise

        sensed = box.sensors.now()
        chores = {one.name: one.last for one in box.housekeeping.statuses() if one.last is not None}
        read = chores.get("check the database")
        loads = box.memory.loads + box.memory.wakes
        quarantined, damaged = await self._variants()
        await others_first()
        expired = box.keyring.expiring(now - EXPIRED_KEYS_TOLD, now)
        await others_first()
        expiring = [key for key in box.keyring.expiring(now, now + EXPIRES_SOON) if key.needs_successor(now)]
        await others_first()
        newest = box.keyring.newest()
        uses = await looked("keys", _uses(box, [*expired, *expiring]), {})
        backup_at, is_backup_due = await looked("backup", _backup(box, now), (None, False))
        memory = box.machine_memory.now()
        return BoxFacts(
            now=now,
            oldest=EPOCH,
            newest=newest,
            is_ready=box.is_ready(),
            is_stuck=box.engine.is_stuck(),
            loop_late_ms=await _loop_late_ms(box),
            database_error=await _database_error(box) or ("" if read is None else read.error),
            database_read_at=None if read is None else read.began_at,
            processors=tuple(
                ProcessorFacts(name=one.description.name, state=one.state, reason=one.reason or "")
                for one in box.processor_statuses()
            ),
            readings=tuple(sensed.readings),
            throttled=sensed.throttled,
            memory=MemoryFacts(
                available_bytes=memory.available_bytes,
                total_bytes=memory.total_bytes,
                bound=memory.bound,
                used_bytes=box.memory.used_bytes,
                budget_bytes=box.memory.budget_bytes,
                loads=self._lately("loads", loads + box.memory.loads_skipped, loads),
            ),
            disk=await looked("disk", asyncio.to_thread(_disk, box), None),
            applications=await self._applications(),
            thrashing={
                _subject(SubjectKind.APPLICATION, id): count for id, count in box.residency.changes_per_min().items()
            },
            thrashing_from=box.residency.reloads.per_min_max,
            sessions=tuple(self._sessions()),
            pipelines=tuple(self._pipelines()),
            failed_imports=await looked("imports of models", _failed_imports(box, now), ()),
            quarantined=quarantined,
            damaged=damaged,
            expired_keys=_keys(expired, uses),
            expiring_keys=_keys(expiring, uses),
            missing_confinement=tuple(name for name in ("files", "calls") if not box.confinement.get(name, False)),
            certificate=await asyncio.to_thread(_certificate, box),
            backup_at=backup_at,
            is_backup_due=is_backup_due,
            failed_chores={name: last.error for name, last in chores.items() if last.error},
            failing_receivers=tuple(
                ReceiverFacts(
                    subject=Subject(SubjectKind.RECEIVER, one.id, one.tenant), title=one.name, reason=last.detail
                )
                for one, last in box.notifications.failing()
            ),
            unseen=unseen,
        )

    async def _variants(self) -> tuple[tuple[VariantFacts, ...], tuple[VariantFacts, ...]]:
        """Return the variants that are quarantined, and those whose files are damaged, in steps between which others
        have their turns.
        """
        quarantined, damaged = [], []
        async for model in _in_steps(self._box.catalogue.models()):
            for variant in model.variants:
                if variant.state is VariantState.QUARANTINED:
                    quarantined.append(_variant(model, variant))
                if variant.is_damaged:
                    damaged.append(_variant(model, variant))
        return tuple(quarantined), tuple(damaged)

    async def _applications(self) -> tuple[ApplicationFacts, ...]:
        """Return those in service of which there is something to judge, in steps between which others have their
        turns.
        """
        box, found = self._box, []
        totals = await self._totals()
        account = MemoryAccount(box.memory, box.shares)
        async for entry in _in_steps(box.catalogue.entries()):
            application, total = entry.application, totals.get(entry.application.id)
            never_fits = "; ".join(one.detail for one in never_fits_warnings(entry, account))
            unreachable = out_of_reach(entry)
            if not (total or never_fits or unreachable) or not box.availability.is_open(application):
                continue
            asked, kept, wanted, done = total or (0, 0, 0, 0)
            found.append(
                ApplicationFacts(
                    subject=_subject(SubjectKind.APPLICATION, application.id),
                    is_shared=application.shared,
                    slo_ms=application.latency_slo_ms,
                    in_time=self._lately(("in time", application.id), asked, kept),
                    answered=self._lately(("answered", application.id), wanted, done),
                    never_fits=never_fits,
                    out_of_reach=unreachable,
                )
            )
        return tuple(found)

    async def _totals(self) -> dict[str, tuple[int, int, int, int]]:
        """Return by application the requests that had an SLO, those that kept it, those that the box had to answer, and
        those answered, since the start.
        """
        totals: dict[str, tuple[int, int, int, int]] = {}
        async for (id, _, _), one in _in_steps(list(self._box.telemetry.statistics.items())):
            done, more = one.outcomes.get("done", 0), totals.get(id, (0, 0, 0, 0))
            own = (one.slo_requests, one.slo_kept, done + one.unanswered, done)
            totals[id] = (own[0] + more[0], own[1] + more[1], own[2] + more[2], own[3] + more[3])
        return totals

    def _sessions(self) -> Iterator[SessionFacts]:
        for live in self._box.sessions.list(None):
            if live.state is not SessionState.ENDED:
                session = live.session
                yield SessionFacts(
                    subject=Subject(SubjectKind.SESSION, live.id, session.tenant),
                    title=f"{session.tenant}/{session.name or live.id} at {session.target}",
                    windows=self._lately(("session", live.id), live.windows, live.kept),
                    is_waiting=live.state is SessionState.WAITING,
                    reason=live.reason,
                )

    def _pipelines(self) -> Iterator[PipelineFacts]:
        for live in self._box.pipelines.all():
            frames, plan, pipeline = live.frames, live.plan, live.pipeline
            is_used = plan is not None and max(plan.fps, plan.wanted_fps) > 0
            yield PipelineFacts(
                subject=_subject(SubjectKind.PIPELINE, pipeline.id),
                slo_ms=pipeline.latency_slo_ms,
                frames=self._lately(("frames", pipeline.id), frames.sent - frames.under_way, frames.in_time),
                is_feasible=plan is None or plan.feasible or not is_used,
                is_degraded=plan is not None and plan.degraded and is_used,
                reason="" if plan is None else plan.reason,
            )


def _subject(kind: SubjectKind, id: str) -> Subject:
    """Return the subject of something whose id is its tenant and its name."""
    tenant, _, name = id.partition("/")
    return Subject(kind, name, tenant)


async def _loop_late_ms(box: RunningBox) -> float:
    """Return how long what a thread hands over waits for its turn, just now."""
    handed_over_ns = await asyncio.to_thread(box.clock.now_ns)
    return (box.clock.now_ns() - handed_over_ns) / NS_PER_MS


async def _database_error(box: RunningBox) -> str:
    try:
        await box.store.tenants.page("", 1)
    except Unavailable as error:
        return str(error)
    return ""


def _disk(box: RunningBox) -> DiskFacts:
    disk = shutil.disk_usage(box.state_dir)
    return DiskFacts(
        free_bytes=disk.free,
        total_bytes=disk.total,
        reserve_bytes=box.store.blobs.reserve_bytes,
        days_left=box.housekeeping.disk.days_left(),
    )


async def _uses(box: RunningBox, records: list[KeyRecord]) -> Mapping[str, datetime.datetime]:
    return await box.store.keys.uses([one.id for one in records[:USES_SHOWN_MAX]]) if records else {}


def _keys(records: list[KeyRecord], uses: Mapping[str, datetime.datetime]) -> tuple[KeyFacts, ...]:
    return tuple(
        KeyFacts(
            subject=Subject(SubjectKind.KEY, one.id, one.tenant),
            label=one.label,
            expires_at=one.expires_at,
            used_at=uses.get(one.id),
        )
        for one in records
        if one.expires_at is not None
    )


def _variant(model: Model, variant: Variant) -> VariantFacts:
    return VariantFacts(
        model=Subject(SubjectKind.MODEL, model.name, model.tenant),
        variant=variant.name,
        reason=variant.reason,
        is_shared=model.shared,
        still_serves=variant.servable,
    )


async def _failed_imports(box: RunningBox, now: datetime.datetime) -> tuple[ImportFacts, ...]:
    jobs = await box.store.jobs.failures(now - FAILED_IMPORTS_TOLD)
    return tuple(
        ImportFacts(model=_subject(SubjectKind.MODEL, one.model_id), error=one.error, at=one.updated_at) for one in jobs
    )


def _certificate(box: RunningBox) -> CertificateFacts | None:
    """Return that of a box with TLS; blocks."""
    path = box.certificate_file
    if path is None or not path.exists():
        return None
    from appliance.api.http.certificate import end_of  # cryptography is large and seldom needed

    try:
        return CertificateFacts(path=str(path), ends_at=end_of(path))
    except (OSError, ValueError) as error:
        return CertificateFacts(path=str(path), ends_at=None, error=str(error))


async def _backup(box: RunningBox, now: datetime.datetime) -> tuple[datetime.datetime | None, bool]:
    """Return when the latest backup was made, and whether one is due: a nightly backup is at most a day old, where the
    box has something to lose. Backups that were made while the clock was far ahead say nothing.
    """
    made = [one for one in await box.backups.all() if one.state is BackupState.READY]
    at = next((one.created_at for one in made if one.created_at - now <= BACKUP_AGE_MAX), None)
    if at is not None and now - at <= BACKUP_AGE_MAX:
        return at, False
    since_start = datetime.timedelta(seconds=(box.clock.now_ns() - box.started_ns) / NS_PER_S)
    has_nothing = not made and (since_start < BACKUP_AGE_MAX or not any(box.catalogue.entries()))
    return at, not has_nothing
