"""Conditions: each kind of trouble that a box can have, with its sentence and what to do about it.

`RULES` is the only list of them: `/v1/health`, the pages, the command line and the events show what is decided by it,
and docs/operations.md explains each of its rows.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """How bad a condition is; also the state of what has the condition."""

    GOOD = "good"
    """Nothing is wrong."""
    WARN = "warn"
    """A person should look at it."""
    BAD = "bad"
    """A person should act now."""


_ORDER = tuple(Severity)


def worst(severities: Sequence[Severity]) -> Severity:
    """Return the worst of them; good where there are none."""
    return max(severities, key=_ORDER.index, default=Severity.GOOD)


class SubjectKind(StrEnum):
    """What kind of thing has a condition."""

    BOX = "box"
    PROCESSOR = "processor"
    APPLICATION = "application"
    PIPELINE = "pipeline"
    SESSION = "session"
    MODEL = "model"
    KEY = "key"
    RECEIVER = "receiver"


class Subject(NamedTuple):
    """The thing that has a condition."""

    kind: SubjectKind
    name: str = ""
    """Name of the thing within its tenant; id of a session, a key or a receiver; empty for the box."""
    tenant: str | None = None
    """Tenant of the thing; None: it belongs to the box."""

    @property
    def title(self) -> str:
        """Name for a sentence, with the tenant."""
        return self.name if self.tenant is None else f"{self.tenant}/{self.name}"


THE_BOX = Subject(SubjectKind.BOX)


class Trouble(StrEnum):
    """Id of each kind of condition."""

    SERVICE_STOPPING = "service-stopping"
    RUN_STUCK = "run-stuck"
    EVENT_LOOP_LATE = "event-loop-late"
    DATABASE_FAILED = "database-failed"
    PROCESSOR_LOST = "processor-lost"
    NO_PROCESSOR = "no-processor"
    PROCESSOR_THROTTLED = "processor-throttled"
    BOX_HOT = "box-hot"
    MACHINE_MEMORY_LOW = "machine-memory-low"
    MEMORY_OVER_BUDGET = "memory-over-budget"
    MEMORY_NO_ROOM = "memory-no-room"
    RESIDENCY_THRASHES = "residency-thrashes"
    DISK_FULL = "disk-full"
    DISK_LOW = "disk-low"
    DISK_FILLS = "disk-fills"
    CLOCK_WRONG = "clock-wrong"
    APPLICATION_LATE = "application-late"
    APPLICATION_FAILS = "application-fails"
    APPLICATION_NEVER_FITS = "application-never-fits"
    SLO_OUT_OF_REACH = "slo-out-of-reach"
    SESSION_BROKEN = "session-broken"
    SESSION_WAITS = "session-waits"
    PIPELINE_LATE = "pipeline-late"
    PIPELINE_WITHOUT_PLAN = "pipeline-without-plan"
    PIPELINE_DEGRADED = "pipeline-degraded"
    IMPORT_FAILED = "import-failed"
    VARIANT_QUARANTINED = "variant-quarantined"
    MODEL_DAMAGED = "model-damaged"
    KEY_EXPIRED = "key-expired"
    KEY_EXPIRES_SOON = "key-expires-soon"
    NOT_CONFINED = "not-confined"
    CERTIFICATE_UNREADABLE = "certificate-unreadable"
    CERTIFICATE_ENDS_SOON = "certificate-ends-soon"
    BACKUP_OLD = "backup-old"
    CHORE_FAILED = "chore-failed"
    RECEIVER_FAILING = "receiver-failing"
    CHECK_FAILED = "check-failed"


class Rule(NamedTuple):
    """Severity, sentence and action of one kind of condition."""

    severity: Severity
    """Severity; of a share that is missed, the least one."""
    text: str
    """Sentence without figures; `{}` stands for the name of the subject."""
    action: str
    """What a person can do; `{}` as in the text."""
    concerns_all: bool = False
    """Every tenant is told of it, without details, although the subject is not the tenant's."""


Key = tuple[Trouble, Subject]


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is wrong now."""

    trouble: Trouble
    subject: Subject
    severity: Severity
    text: str
    """One sentence without figures."""
    detail: str
    """The figures behind it, or the reason."""
    action: str
    """What a person can do."""
    since: datetime.datetime
    is_shared: bool = False
    """All tenants see the subject, not its own tenant alone."""

    @property
    def key(self) -> Key:
        """What makes it the same condition at the next look."""
        return self.trouble, self.subject

    def as_seen_by(self, tenant: str) -> "Condition | None":
        """Return what a key of the tenant may know of it; None: nothing."""
        if self.subject.tenant == tenant:
            return self
        is_told = self.is_shared or (self.subject.tenant is None and RULES[self.trouble].concerns_all)
        return replace(self, detail="", action=_TELL) if is_told else None


_TELL = "Tell the operator of the box."


@dataclass(frozen=True, slots=True)
class Check:
    """A part of the box that was looked at, with the conditions found in it."""

    name: str
    conditions: tuple[Condition, ...]
    well: str
    """What is told where nothing is wrong."""
    concerns_tenants: bool = False
    """A tenant's key is shown the check, with the conditions of the tenant."""

    @property
    def state(self) -> Severity:
        """The worst of its conditions."""
        return worst([one.severity for one in self.conditions])

    def as_seen_by(self, tenant: str) -> "Check":
        """Return the check with what a key of the tenant may know."""
        seen = (one.as_seen_by(tenant) for one in self.conditions)
        return replace(self, conditions=tuple(one for one in seen if one is not None))


RULES: Mapping[Trouble, Rule] = {
    Trouble.SERVICE_STOPPING: Rule(
        Severity.BAD,
        "The box takes no requests: it is stopping.",
        "Wait until it has stopped, then start it again.",
        True,
    ),
    Trouble.RUN_STUCK: Rule(
        Severity.BAD,
        "A run holds a worker long after it should have ended.",
        "Restart the box, as systemd does where it watches it; delete the model that ran.",
        True,
    ),
    Trouble.EVENT_LOOP_LATE: Rule(
        Severity.WARN,
        "All requests wait for one another, because the event loop is late.",
        "See what else takes the processors of the machine; save a support file on the page Box if nothing.",
    ),
    Trouble.DATABASE_FAILED: Rule(
        Severity.BAD,
        "The database cannot be read, or is damaged.",
        "Look at the disk and the owner of the state folder; where the file is damaged, make a new state folder from "
        "the last good backup with 'appliance restore'.",
        True,
    ),
    Trouble.PROCESSOR_LOST: Rule(
        Severity.BAD,
        "Processor {} takes no runs.",
        "See the page Processors and the log of the box; the others serve meanwhile.",
        True,
    ),
    Trouble.NO_PROCESSOR: Rule(
        Severity.BAD, "No processor takes runs.", "See the page Processors and the log of the box; restart it.", True
    ),
    Trouble.PROCESSOR_THROTTLED: Rule(
        Severity.WARN, "Processor {} is slower than it could be.", "Cool the box, or give it more power.", True
    ),
    Trouble.BOX_HOT: Rule(Severity.WARN, "The box is too hot.", "Cool the box: answers take longer until then.", True),
    Trouble.MACHINE_MEMORY_LOW: Rule(
        Severity.WARN,
        "The machine has hardly any free memory.",
        "End other programs on the machine, raise the limit of the container or unit, or lower memory.budget_bytes.",
        True,
    ),
    Trouble.MEMORY_OVER_BUDGET: Rule(
        Severity.BAD,
        "Models and their processes take more memory than the budget.",
        "Raise memory.budget_bytes, end other programs on the machine, or delete models.",
        True,
    ),
    Trouble.MEMORY_NO_ROOM: Rule(
        Severity.WARN,
        "Memory has no room for models that will be needed soon.",
        "Raise memory.budget_bytes, or delete models; see the page Memory.",
        True,
    ),
    Trouble.RESIDENCY_THRASHES: Rule(
        Severity.WARN,
        "Application {} is loaded and unloaded again and again.",
        "Raise memory.budget_bytes, or have fewer applications compete for memory; see the page Memory.",
    ),
    Trouble.DISK_FULL: Rule(
        Severity.BAD,
        "The disk has no room for uploads and imports.",
        "Delete models or uploads, or make room on the disk.",
        True,
    ),
    Trouble.DISK_LOW: Rule(
        Severity.WARN, "The disk is nearly full.", "Make room before the next import: it may need it."
    ),
    Trouble.DISK_FILLS: Rule(
        Severity.WARN,
        "The disk will be full in less than two weeks.",
        "Delete what is not needed, or give the box more disk.",
    ),
    Trouble.CLOCK_WRONG: Rule(
        Severity.BAD,
        "The clock of the box is wrong.",
        "Set it, or let the system do so (timedatectl set-ntp true): keys and certificates expire by it.",
        True,
    ),
    Trouble.APPLICATION_LATE: Rule(
        Severity.WARN,
        "Application {} does not keep its SLO.",
        "See on its page where the time goes; allow a longer SLO, use a smaller model, or send fewer requests.",
    ),
    Trouble.APPLICATION_FAILS: Rule(
        Severity.WARN,
        "Requests to application {} fail.",
        "See the notable requests on its page; each has its error.",
    ),
    Trouble.APPLICATION_NEVER_FITS: Rule(
        Severity.BAD,
        "Application {} has no variant that can ever fit into memory.",
        "Raise memory.budget_bytes, or import a smaller model.",
    ),
    Trouble.SLO_OUT_OF_REACH: Rule(
        Severity.WARN,
        "Application {} has an SLO that no variant can keep.",
        "Allow a longer SLO, or import a smaller model.",
    ),
    Trouble.SESSION_BROKEN: Rule(
        Severity.WARN,
        "Session {} does not get what it was promised.",
        "See its causes on the page Sessions; ask for less, or end sessions that are not needed.",
    ),
    Trouble.SESSION_WAITS: Rule(
        Severity.WARN,
        "Session {} is not served: it waits for room.",
        "Ask for less of what the reason names, or end sessions that are not needed.",
    ),
    Trouble.PIPELINE_LATE: Rule(
        Severity.WARN,
        "Pipeline {} finishes too few frames in time.",
        "See on its page which stage is late; allow a longer SLO, or send fewer frames.",
    ),
    Trouble.PIPELINE_WITHOUT_PLAN: Rule(
        Severity.BAD,
        "Pipeline {} has no plan that keeps its SLO.",
        "See the reason of the plan on its page; allow a longer SLO, or send fewer frames.",
    ),
    Trouble.PIPELINE_DEGRADED: Rule(
        Severity.WARN,
        "Pipeline {} is served with less than it asks for.",
        "See the reason of the plan on its page; send fewer frames, or have fewer pipelines compete.",
    ),
    Trouble.IMPORT_FAILED: Rule(
        Severity.WARN,
        "The last import of model {} failed.",
        "Mend what the error names, and import the model again. A failed import is told for a day.",
    ),
    Trouble.VARIANT_QUARANTINED: Rule(
        Severity.WARN,
        "A variant of model {} is out of service: its process ended too often.",
        "See the reason on the page of the model; let the variant serve again, or delete it.",
    ),
    Trouble.MODEL_DAMAGED: Rule(
        Severity.WARN,
        "Files of model {} are damaged on the disk.",
        "Upload the same files again under the same names: applications and their settings stay. Look at the disk. "
        "What still serves does so from its prepared form.",
    ),
    Trouble.KEY_EXPIRED: Rule(
        Severity.WARN,
        "A key of tenant {} has expired.",
        "Make another one for its devices on the page of the tenant, and delete this one.",
    ),
    Trouble.KEY_EXPIRES_SOON: Rule(
        Severity.WARN,
        "A key of tenant {} expires soon.",
        "Make another one for its devices on the page of the tenant.",
    ),
    Trouble.NOT_CONFINED: Rule(
        Severity.WARN,
        "Processes that touch uploaded files are less confined than they should be.",
        "Use a kernel with Landlock, and let the unit of systemd permit its calls.",
    ),
    Trouble.CERTIFICATE_UNREADABLE: Rule(
        Severity.BAD,
        "The certificate of the box cannot be read.",
        "Put a certificate at {}: without one the box does not start again.",
    ),
    Trouble.CERTIFICATE_ENDS_SOON: Rule(
        Severity.WARN,
        "The certificate of the box ends soon.",
        "Put a new one in its place: the box shows it within a minute. The box's own it renews by itself.",
    ),
    Trouble.BACKUP_OLD: Rule(
        Severity.WARN,
        "The box has no recent backup.",
        "Make one on the page Box, and see there why none was made at night.",
    ),
    Trouble.CHORE_FAILED: Rule(
        Severity.WARN,
        "A chore of the box has failed.",
        "See Housekeeping on the page Box; each is tried again at its next time.",
    ),
    Trouble.RECEIVER_FAILING: Rule(
        Severity.WARN,
        "Notifications to {} do not arrive.",
        "Send it a test message where receivers are listed, mend what the answer names, or remove it.",
    ),
    Trouble.CHECK_FAILED: Rule(
        Severity.BAD,
        "The box cannot look at everything that it checks.",
        "Look at the disk and the owner of the state folder.",
        True,
    ),
}
