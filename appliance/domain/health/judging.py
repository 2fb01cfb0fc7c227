"""Judging: facts of a box → its checks with the conditions that hold.

Conditions that stood at the last look decide with: what begins at one figure ends at a better one, so that nothing
comes and goes with each look.
"""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from appliance.domain.health.conditions import (
    RULES,
    THE_BOX,
    Check,
    Condition,
    Key,
    Severity,
    Subject,
    SubjectKind,
    Trouble,
)
from appliance.domain.health.facts import BoxFacts, KeyFacts, VariantFacts
from appliance.domain.health.recent import Share
from appliance.domain.sensors import Quantity
from appliance.domain.states import ProcessorState

MISSED_MIN = 3
"""So many have to be missed before a promise counts as broken."""
MISSED_SHARE_MAX = 0.05
MISSED_SHARE_BAD = 0.5
EASE = 0.5
"""Part of a limit below which a condition that stands ends."""
LOOP_LATE_MS_MAX = 250.0
MEMORY_FREE_MIN = 0.05
"""Share of the machine's memory."""
DISK_FREE_MIN = 0.05
DISK_FREE_BYTES_MIN = 256 * 2**20
DISK_DAYS_MIN = 14
COOLER_BY = 3.0
"""Degrees below its limit at which a hot sensor is hot no more."""
CLOCK_BEHIND_MAX = datetime.timedelta(hours=1)
CERTIFICATE_SOON = datetime.timedelta(days=30)
_LOST = (ProcessorState.LOST, ProcessorState.UNFIT)


def judged(facts: BoxFacts, standing: Mapping[Key, Condition]) -> tuple[Check, ...]:
    """Return all checks of the box; `standing`: the conditions of the last look."""
    look = _Look(facts, standing)
    checks = (
        Check("service", tuple(look.service()), "requests are answered, and no run is stuck", True),
        Check("event loop", tuple(look.event_loop()), f"it turns: {facts.loop_late_ms:.1f} ms late just now"),
        Check("database", tuple(look.database()), look.database_well()),
        Check("processors", tuple(look.processors()), f"{len(facts.processors)} of {len(facts.processors)} compute"),
        Check("memory", tuple(look.memory()), look.memory_well()),
        Check("disk", tuple(look.disk()), look.disk_well()),
        Check("heat", tuple(look.heat()), look.heat_well()),
        Check("clock", tuple(look.clock()), f"{facts.now:%Y-%m-%d %H:%M} UTC"),
        Check("promises", tuple(look.promises()), "promises to applications, sessions and pipelines are kept", True),
        Check("imports of models", tuple(look.failed_imports()), "no import has failed of late", True),
        Check("quarantine", tuple(look.quarantine()), "no variant is taken out of service", True),
        Check("files of models", tuple(look.damaged()), "all are as they were uploaded", True),
        Check("keys", tuple(look.keys()), "none expires soon", True),
        Check("imports", tuple(look.confinement()), "what touches uploaded files is confined"),
        *look.certificate(),
        Check("backup", tuple(look.backup()), look.backup_well()),
        Check("housekeeping", tuple(look.chores()), "no chore has failed"),
        Check("notifications", tuple(look.receivers()), "messages to receivers arrive", True),
    )
    return tuple(look.with_unseen(check) for check in checks)


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at a box."""

    facts: BoxFacts
    standing: Mapping[Key, Condition]

    def found(
        self,
        trouble: Trouble,
        subject: Subject,
        detail: str,
        *,
        severity: Severity | None = None,
        title: str = "",
        is_shared: bool = False,
    ) -> Condition:
        """Make the condition; `severity` where it is not that of the rule, `title` where it is not the subject's."""
        rule, before = RULES[trouble], self.standing.get((trouble, subject))
        return Condition(
            trouble=trouble,
            subject=subject,
            severity=severity or rule.severity,
            text=rule.text.format(title or subject.title),
            detail=detail,
            action=rule.action.format(title or subject.title),
            since=self.facts.now if before is None else before.since,
            is_shared=is_shared,
        )

    def stands(self, trouble: Trouble, subject: Subject = THE_BOX) -> bool:
        """Whether the condition was there at the last look."""
        return (trouble, subject) in self.standing

    def exceeds(self, trouble: Trouble, value: float, limit: float, subject: Subject = THE_BOX) -> bool:
        """Whether a value is above its limit, or was and is not well below it again."""
        return value > limit * (EASE if self.stands(trouble, subject) else 1)

    def missed(
        self, trouble: Trouble, subject: Subject, share: Share, detail: str, *, title: str = "", is_shared: bool = False
    ) -> Iterator[Condition]:
        """Find the condition where too much of what was promised was missed."""
        before = self.standing.get((trouble, subject))
        if before is None and share.missed < MISSED_MIN:
            return
        if self.exceeds(trouble, share.missed, MISSED_SHARE_MAX * share.counted, subject):
            was_bad = before is not None and before.severity is Severity.BAD
            is_bad = share.missed > MISSED_SHARE_BAD * share.counted * (EASE if was_bad else 1)
            severity = Severity.BAD if is_bad else Severity.WARN
            yield self.found(trouble, subject, detail, severity=severity, title=title, is_shared=is_shared)

    def with_unseen(self, check: Check) -> Check:
        """Add what could not be looked at."""
        if check.name not in self.facts.unseen:
            return check
        detail = f"{check.name}: it cannot be looked at: {self.facts.unseen[check.name]}"
        subject = THE_BOX._replace(name=check.name)
        return replace(check, conditions=(*check.conditions, self.found(Trouble.CHECK_FAILED, subject, detail)))

    # -- the box -------------------------------------------------------------------------------------------------------

    def service(self) -> Iterator[Condition]:
        if not self.facts.is_ready:
            yield self.found(Trouble.SERVICE_STOPPING, THE_BOX, "")
        elif self.facts.is_stuck:
            yield self.found(Trouble.RUN_STUCK, THE_BOX, "")

    def event_loop(self) -> Iterator[Condition]:
        late_ms = self.facts.loop_late_ms
        if self.exceeds(Trouble.EVENT_LOOP_LATE, late_ms, LOOP_LATE_MS_MAX):
            yield self.found(Trouble.EVENT_LOOP_LATE, THE_BOX, f"it was held for {late_ms:.0f} ms just now")

    def database(self) -> Iterator[Condition]:
        if self.facts.database_error:
            yield self.found(Trouble.DATABASE_FAILED, THE_BOX, self.facts.database_error)

    def database_well(self) -> str:
        read_at = self.facts.database_read_at
        return "it can be read" if read_at is None else f"whole on {read_at:%Y-%m-%d}"

    def processors(self) -> Iterator[Condition]:
        known = self.facts.processors
        lost = [one for one in known if one.state in _LOST]
        if known and len(lost) == len(known):
            reasons = "; ".join(f"{one.name} is {one.state.value}: {one.reason}" for one in lost)
            yield self.found(Trouble.NO_PROCESSOR, THE_BOX, reasons)
        for one in known:
            subject = Subject(SubjectKind.PROCESSOR, one.name)
            detail = f"{one.name} is {one.state.value}: {one.reason}"
            if one in lost:
                yield self.found(Trouble.PROCESSOR_LOST, subject, detail)
            elif one.state is ProcessorState.THROTTLED:
                yield self.found(Trouble.PROCESSOR_THROTTLED, subject, detail)

    def memory(self) -> Iterator[Condition]:
        memory = self.facts.memory
        if memory.used_bytes > memory.budget_bytes:
            detail = f"they take {_mb(memory.used_bytes)} of {_mb(memory.budget_bytes)}"
            yield self.found(Trouble.MEMORY_OVER_BUDGET, THE_BOX, detail)
        detail = f"{memory.loads.missed} of the last {memory.loads.counted} loads found no room"
        yield from self.missed(Trouble.MEMORY_NO_ROOM, THE_BOX, memory.loads, detail)
        least = MEMORY_FREE_MIN * memory.total_bytes
        if self.runs_low(Trouble.MACHINE_MEMORY_LOW, memory.available_bytes, least):
            yield self.found(Trouble.MACHINE_MEMORY_LOW, THE_BOX, f"only {self.memory_well()}")

    def runs_low(self, trouble: Trouble, free: float, least: float) -> bool:
        """Whether too little is free, or was and is not well above that again."""
        return free < least * (1.2 if self.stands(trouble) else 1)

    def memory_well(self) -> str:
        memory = self.facts.memory
        whose = f"allowed by the limit of its container or unit ({memory.bound})" if memory.bound else "of the machine"
        return f"{_mb(memory.available_bytes)} are free of {_mb(memory.total_bytes)} {whose}"

    def disk(self) -> Iterator[Condition]:
        disk = self.facts.disk
        if disk is None:
            return
        room_bytes = disk.free_bytes - max(disk.reserve_bytes, DISK_FREE_BYTES_MIN)
        if room_bytes < 0:
            detail = f"{self.disk_well()}; {_mb(-room_bytes)} more are needed"
            yield self.found(Trouble.DISK_FULL, THE_BOX, detail)
        elif self.runs_low(Trouble.DISK_LOW, disk.free_bytes, DISK_FREE_MIN * disk.total_bytes):
            yield self.found(Trouble.DISK_LOW, THE_BOX, self.disk_well())
        elif disk.days_left is not None and disk.days_left < DISK_DAYS_MIN:
            yield self.found(Trouble.DISK_FILLS, THE_BOX, self.disk_well())

    def disk_well(self) -> str:
        disk = self.facts.disk
        if disk is None:
            return "not known"
        room = _mb(max(0, disk.free_bytes - disk.reserve_bytes))
        detail = (
            f"{_mb(disk.free_bytes)} of {_mb(disk.total_bytes)} are free where the state folder is; "
            f"{_mb(disk.reserve_bytes)} must stay free, so uploads and imports have room for {room}"
        )
        return detail if disk.days_left is None else f"{detail}, enough for about {_days(disk.days_left)}"

    def heat(self) -> Iterator[Condition]:
        cooler = COOLER_BY if self.stands(Trouble.BOX_HOT) else 0.0
        said = [
            f"{one.name} has {one.value} °C of {one.limit}"
            for one in self.facts.readings
            if one.quantity is Quantity.CELSIUS
            and one.value is not None
            and one.limit is not None
            and one.value >= one.limit - cooler
        ]
        said += [f"{device}: {why}" for device, why in sorted(self.facts.throttled.items())]
        if said:
            yield self.found(Trouble.BOX_HOT, THE_BOX, "; ".join(said))

    def heat_well(self) -> str:
        known = [one.value for one in self.facts.readings if one.quantity is Quantity.CELSIUS]
        values = [value for value in known if value is not None]
        return f"{max(values):.0f} °C at the most" if values else "the machine has no sensor for it"

    def clock(self) -> Iterator[Condition]:
        now, newest = self.facts.now, self.facts.newest
        if now < self.facts.oldest:
            yield self.found(Trouble.CLOCK_WRONG, THE_BOX, f"it says {now:%Y-%m-%d}")
        elif newest is not None and newest - now > CLOCK_BEHIND_MAX:
            detail = f"it says {now:%Y-%m-%d %H:%M} UTC, but a key was made on {newest:%Y-%m-%d %H:%M} UTC"
            yield self.found(Trouble.CLOCK_WRONG, THE_BOX, detail)

    # -- promises ------------------------------------------------------------------------------------------------------

    def promises(self) -> Iterator[Condition]:
        yield from self.applications()
        yield from self.thrashing()
        yield from self.sessions()
        yield from self.pipelines()

    def applications(self) -> Iterator[Condition]:
        for one in self.facts.applications:
            subject, is_shared = one.subject, one.is_shared
            if one.slo_ms is not None:
                told = f"{one.in_time.kept} of the last {one.in_time.counted} requests were answered"
                detail = f"{told} within {one.slo_ms:g} ms"
                yield from self.missed(Trouble.APPLICATION_LATE, subject, one.in_time, detail, is_shared=is_shared)
            detail = f"{one.answered.missed} of the last {one.answered.counted} requests failed"
            yield from self.missed(Trouble.APPLICATION_FAILS, subject, one.answered, detail, is_shared=is_shared)
            if one.never_fits:
                yield self.found(Trouble.APPLICATION_NEVER_FITS, subject, one.never_fits, is_shared=is_shared)
            if one.out_of_reach:
                yield self.found(Trouble.SLO_OUT_OF_REACH, subject, one.out_of_reach, is_shared=is_shared)

    def thrashing(self) -> Iterator[Condition]:
        for subject, count in self.facts.thrashing.items():
            if self.exceeds(Trouble.RESIDENCY_THRASHES, count, self.facts.thrashing_from - 1, subject):
                detail = f"its variants came into memory {count} times in the last minute"
                yield self.found(Trouble.RESIDENCY_THRASHES, subject, detail)

    def sessions(self) -> Iterator[Condition]:
        for one in self.facts.sessions:
            detail = f"the promise was kept in {one.windows.kept} of the last {one.windows.counted} windows of time"
            yield from self.missed(Trouble.SESSION_BROKEN, one.subject, one.windows, detail, title=one.title)
            if one.is_waiting:
                yield self.found(Trouble.SESSION_WAITS, one.subject, one.reason, title=one.title)

    def pipelines(self) -> Iterator[Condition]:
        for one in self.facts.pipelines:
            detail = f"{one.frames.kept} of the last {one.frames.counted} frames were in time ({one.slo_ms:g} ms)"
            yield from self.missed(Trouble.PIPELINE_LATE, one.subject, one.frames, detail)
            if not one.is_feasible:
                yield self.found(Trouble.PIPELINE_WITHOUT_PLAN, one.subject, one.reason)
            elif one.is_degraded:
                yield self.found(Trouble.PIPELINE_DEGRADED, one.subject, one.reason)

    # -- models and keys -----------------------------------------------------------------------------------------------

    def failed_imports(self) -> Iterator[Condition]:
        for one in self.facts.failed_imports:
            detail = f"{one.model.title}, {one.at:%Y-%m-%d %H:%M} UTC: {one.error}"
            yield self.found(Trouble.IMPORT_FAILED, one.model, detail)

    def quarantine(self) -> Iterator[Condition]:
        for subject, own in _by_model(self.facts.quarantined).items():
            detail = "; ".join(f"{subject.title} {one.variant}: {one.reason}" for one in own)
            yield self.found(Trouble.VARIANT_QUARANTINED, subject, detail, is_shared=own[0].is_shared)

    def damaged(self) -> Iterator[Condition]:
        for subject, own in _by_model(self.facts.damaged).items():
            detail = f"damaged on the disk: {', '.join(f'{subject.title} {one.variant}' for one in own)}"
            severity = Severity.WARN if all(one.still_serves for one in own) else Severity.BAD
            yield self.found(Trouble.MODEL_DAMAGED, subject, detail, severity=severity, is_shared=own[0].is_shared)

    def keys(self) -> Iterator[Condition]:
        found = ((Trouble.KEY_EXPIRED, self.facts.expired_keys), (Trouble.KEY_EXPIRES_SOON, self.facts.expiring_keys))
        for trouble, keys in found:
            for key in keys:
                yield self.found(trouble, key.subject, _expiry(key, self.facts.now), title=key.subject.tenant or "")

    # -- what the operator looks after ---------------------------------------------------------------------------------

    def confinement(self) -> Iterator[Condition]:
        if missing := self.facts.missing_confinement:
            yield self.found(Trouble.NOT_CONFINED, THE_BOX, f"{', '.join(missing)} missing")

    def certificate(self) -> Iterator[Check]:
        """Return the check of a box that has a certificate."""
        certificate = self.facts.certificate
        if certificate is None:
            return
        found: tuple[Condition, ...] = ()
        if certificate.ends_at is None:
            detail = f"{certificate.path}: {certificate.error}; the box still shows the earlier one"
            found = (self.found(Trouble.CERTIFICATE_UNREADABLE, THE_BOX, detail, title=certificate.path),)
        elif certificate.ends_at - self.facts.now < CERTIFICATE_SOON:
            detail = f"{certificate.path} ends on {certificate.ends_at:%Y-%m-%d}"
            found = (self.found(Trouble.CERTIFICATE_ENDS_SOON, THE_BOX, detail),)
        yield Check("certificate", found, f"good until {certificate.ends_at:%Y-%m-%d}" if certificate.ends_at else "")

    def backup(self) -> Iterator[Condition]:
        if self.facts.is_backup_due:
            at = self.facts.backup_at
            detail = "there is none" if at is None else f"the latest is of {at:%Y-%m-%d}"
            yield self.found(Trouble.BACKUP_OLD, THE_BOX, detail)

    def backup_well(self) -> str:
        at = self.facts.backup_at
        return "there is none yet" if at is None else f"the latest is of {at:%Y-%m-%d %H:%M} UTC"

    def chores(self) -> Iterator[Condition]:
        for name, error in self.facts.failed_chores.items():
            yield self.found(Trouble.CHORE_FAILED, THE_BOX._replace(name=name), f"{name}: {error}")

    def receivers(self) -> Iterator[Condition]:
        for one in self.facts.failing_receivers:
            yield self.found(Trouble.RECEIVER_FAILING, one.subject, one.reason, title=one.title)


def _by_model(variants: Sequence[VariantFacts]) -> dict[Subject, list[VariantFacts]]:
    found: dict[Subject, list[VariantFacts]] = {}
    for one in variants:
        found.setdefault(one.model, []).append(one)
    return found


def _expiry(key: KeyFacts, now: datetime.datetime) -> str:
    word = "expired" if key.expires_at <= now else "expires"
    used = "never used" if key.used_at is None else f"last used on {key.used_at:%Y-%m-%d}"
    return f"{key.subject.tenant}/{key.label or key.subject.name} ({used}) {word} on {key.expires_at:%Y-%m-%d}"


def _days(days: float) -> str:
    """`1 day`, `9 days`."""
    whole = max(1, round(days))
    return "1 day" if whole == 1 else f"{whole} days"


def _mb(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
