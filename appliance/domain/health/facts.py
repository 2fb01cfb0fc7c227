"""Facts: what is known of a box when its health is judged, as plain values."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field

from appliance.domain.health.conditions import Subject
from appliance.domain.health.recent import NOTHING, Share
from appliance.domain.sensors import Reading
from appliance.domain.states import ProcessorState


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorFacts:
    """One processor."""

    name: str
    state: ProcessorState
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFacts:
    """Memory of the machine and of models, in bytes."""

    available_bytes: int
    total_bytes: int
    bound: str = ""
    """The limit of a container or unit that allows no more; empty: the machine has no more."""
    used_bytes: int = 0
    """Bytes of builds and of processes beside them."""
    budget_bytes: int = 0
    loads: Share = NOTHING
    """Loads of late, and those of them that found room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFacts:
    """The disk of the state folder, in bytes."""

    free_bytes: int
    total_bytes: int
    reserve_bytes: int
    """Bytes that uploads and imports leave free."""
    days_left: float | None = None
    """Days until the disk is full; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationFacts:
    """An application and its promise."""

    subject: Subject
    is_shared: bool = False
    slo_ms: float | None = None
    in_time: Share = NOTHING
    """Requests of late that had an SLO, and those of them answered within it."""
    answered: Share = NOTHING
    """Requests of late that the box had to answer, and those of them that were answered."""
    never_fits: str = ""
    """Why no variant ever fits into memory; empty: one does."""
    out_of_reach: str = ""
    """Why no variant keeps the SLO; empty: one does, or that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """A session of a device."""

    subject: Subject
    title: str
    """Name of the session and of what its frames go to."""
    windows: Share = NOTHING
    """Windows of time of late, and those of them in which the promise was kept."""
    is_waiting: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFacts:
    """A pipeline, its frames and its plan."""

    subject: Subject
    slo_ms: float
    frames: Share = NOTHING
    """Frames of late that have ended, and those of them in time and whole."""
    is_feasible: bool = True
    """False: there is no plan for the frames that come."""
    is_degraded: bool = False
    reason: str = ""
    """Reason of the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantFacts:
    """A variant of a model that cannot serve as it should."""

    model: Subject
    variant: str
    reason: str
    is_shared: bool = False
    still_serves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFacts:
    """The last import of a model, which has failed."""

    model: Subject
    error: str
    at: datetime.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFacts:
    """A key that has expired or soon will."""

    subject: Subject
    label: str
    expires_at: datetime.datetime
    used_at: datetime.datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverFacts:
    """A receiver to which notifications do not arrive."""

    subject: Subject
    title: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFacts:
    """The certificate of the box."""

    path: str
    ends_at: datetime.datetime | None
    """None: it cannot be read."""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxFacts:
    """All that the health of a box is judged by."""

    now: datetime.datetime
    oldest: datetime.datetime
    """A clock that is behind it was never set."""
    newest: datetime.datetime | None = None
    """When the newest key was made, by the clock of that time."""
    is_ready: bool = True
    is_stuck: bool = False
    loop_late_ms: float = 0.0
    database_error: str = ""
    database_read_at: datetime.datetime | None = None
    """When the whole database was read last."""
    processors: tuple[ProcessorFacts, ...] = ()
    readings: tuple[Reading, ...] = ()
    throttled: Mapping[str, str] = field(default_factory=dict)
    memory: MemoryFacts
    disk: DiskFacts | None = None
    applications: tuple[ApplicationFacts, ...] = ()
    thrashing: Mapping[Subject, int] = field(default_factory=dict)
    """Application → loads and unloads of its variants in the last minute."""
    thrashing_from: int = 30
    """Changes a minute from which an application thrashes."""
    sessions: tuple[SessionFacts, ...] = ()
    pipelines: tuple[PipelineFacts, ...] = ()
    failed_imports: tuple[ImportFacts, ...] = ()
    quarantined: tuple[VariantFacts, ...] = ()
    damaged: tuple[VariantFacts, ...] = ()
    expired_keys: tuple[KeyFacts, ...] = ()
    expiring_keys: tuple[KeyFacts, ...] = ()
    missing_confinement: tuple[str, ...] = ()
    certificate: CertificateFacts | None = None
    backup_at: datetime.datetime | None = None
    is_backup_due: bool = False
    failed_chores: Mapping[str, str] = field(default_factory=dict)
    failing_receivers: tuple[ReceiverFacts, ...] = ()
    unseen: Mapping[str, str] = field(default_factory=dict)
    """Check → why the box could not look."""
