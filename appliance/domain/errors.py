"""Everything that can go wrong, as types with facts for fields.

ApplianceError
├── NotFound: UnknownTenant, UnknownModel, UnknownApplication, UnknownVariant, UnknownJob, UnknownUpload, UnknownKey,
│   UnknownDecision
├── Conflict: AlreadyExists, InUse, Overcommitted, IllegalState, OffsetMismatch, ModelUnavailable
├── BadInput: BadName, BadTensor, BadMedia, BadMetadata, BadQuota, BadModel, BadArchive, SloNotKept
├── TooLarge
├── NotAllowed: MissingKey, WrongKey, Forbidden
├── LimitReached: QuotaExceeded, QueueFull, TooManyFailedKeys, TooManyConnections
├── Unavailable: Busy, OutOfMemory (CeilingReached, NoRoomToRun), LoadFailed, ProcessorLost, VariantQuarantined,
│   NotConfined, ShuttingDown, StorageFull, StorageBusy, StorageFailed
├── DeadlineExceeded
└── RunFailed (RunRefused, RunCrashed, RunStopped)

No HTTP words here: `api/http/problems.py` has the one table that maps these to answers.
"""

from dataclasses import dataclass, field, fields
from math import ceil
from typing import TypedDict

from appliance.domain.units import BYTES_PER_MB


@dataclass(kw_only=True)
class ApplianceError(Exception):
    """Root of the tree; `str()` is one sentence for a person that says what to do where something can be done."""

    def __str__(self) -> str:
        return self.message()

    def message(self) -> str:
        """The sentence; subclasses fill in their facts."""
        return "the appliance could not do this"

    def facts(self) -> dict[str, object]:
        """The fields, for logs and for the problem document."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    __hash__ = Exception.__hash__


# -- not found ---------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class NotFound(ApplianceError):
    """Nothing of this name is visible to the caller (it may exist for another tenant: the answer is the same)."""

    name: str
    what = "thing"

    def message(self) -> str:
        return f"there is no {self.what} {self.name!r}"

    __hash__ = Exception.__hash__


class UnknownTenant(NotFound):
    what = "tenant"


class UnknownModel(NotFound):
    what = "model"


class UnknownApplication(NotFound):
    what = "application"


class UnknownVariant(NotFound):
    what = "variant"


class UnknownJob(NotFound):
    what = "job"


class UnknownUpload(NotFound):
    what = "upload"


class UnknownKey(NotFound):
    what = "key"


class UnknownDecision(NotFound):
    """Never made, of others only, or older than those that are kept."""

    what = "decision"


# -- conflict ----------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Conflict(ApplianceError):
    """The request is fine, the state of the box is not."""

    name: str

    def message(self) -> str:
        return f"{self.name!r} is in no state for this"

    __hash__ = Exception.__hash__


class AlreadyExists(Conflict):
    def message(self) -> str:
        return f"{self.name!r} exists already; choose another name or delete it first"


class InUse(Conflict):
    def message(self) -> str:
        return f"{self.name!r} is in use"


@dataclass(kw_only=True)
class Overcommitted(Conflict):
    """More memory would be guaranteed to tenants than the box has; `name` is the tenant that asked."""

    guarantee_bytes: int
    others_bytes: int
    budget_bytes: int

    def message(self) -> str:
        left = max(0, self.budget_bytes - self.others_bytes)
        return (
            f"{self.guarantee_bytes} bytes cannot be guaranteed to {self.name!r}: of the budget of "
            f"{self.budget_bytes}, "
            f"{self.others_bytes} are guaranteed to others, so at most {left} are left"
        )

    __hash__ = Exception.__hash__


@dataclass(kw_only=True)
class IllegalState(Conflict):
    state: str

    def message(self) -> str:
        return f"{self.name!r} is {self.state}; this is not possible now"

    __hash__ = Exception.__hash__


@dataclass(kw_only=True)
class OffsetMismatch(Conflict):
    """A resumed upload must go on exactly where the box stopped."""

    expected_offset: int

    def message(self) -> str:
        return f"upload {self.name!r} goes on at offset {self.expected_offset}"

    __hash__ = Exception.__hash__


class ModelUnavailable(Conflict):
    """Known, but explicitly unloaded, or no variant is servable yet."""

    def message(self) -> str:
        return f"model {self.name!r} is not available: load it, or wait until its import has a first variant"


# -- bad input ---------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class BadInput(ApplianceError):
    """What the caller sent cannot be used; `reason` says why, in words for them."""

    reason: str = ""

    def message(self) -> str:
        return self.reason or "what was sent cannot be used"

    __hash__ = Exception.__hash__


@dataclass(kw_only=True)
class BadName(BadInput):
    what: str
    name: str
    rule: str = "use 1 to 63 of a-z 0-9 . _ - and start with a letter or digit"

    def message(self) -> str:
        return f"{self.name!r} is no name for a {self.what}: {self.rule}"

    __hash__ = Exception.__hash__


class BadTensor(BadInput):
    """Wrong name, type, shape or byte count of a tensor."""


class BadMedia(BadInput):
    """The picture, sound or text cannot be decoded."""


class BadMetadata(BadInput):
    """The metadata of an upload contradicts itself or the model."""


class BadQuota(BadInput):
    """The parts of a quota contradict one another."""


class BadModel(BadInput):
    """The ONNX file is refused."""


class BadArchive(BadInput):
    """The tar or zip is refused."""


@dataclass(kw_only=True)
class SloNotKept(BadInput):
    """No variant keeps the latency that an application promises, and the caller wanted to be strict about it."""

    variant: str
    """The fastest."""
    p99_ms: float
    latency_slo_ms: float

    __hash__ = Exception.__hash__


@dataclass(kw_only=True)
class TooLarge(ApplianceError):
    what: str
    limit_bytes: int

    def message(self) -> str:
        return f"{self.what} is larger than the limit of {self.limit_bytes} bytes"

    __hash__ = Exception.__hash__


# -- not allowed -------------------------------------------------------------------------------------------------------


class NotAllowed(ApplianceError):
    """The caller may not do this."""

    def message(self) -> str:
        return "this is not allowed"


class MissingKey(NotAllowed):
    def message(self) -> str:
        return "send a key: 'Authorization: Bearer KEY'"


class WrongKey(NotAllowed):
    def message(self) -> str:
        return "the key is unknown, expired or revoked"


@dataclass(kw_only=True)
class Forbidden(NotAllowed):
    action: str

    def message(self) -> str:
        return f"this key may not {self.action}"

    __hash__ = Exception.__hash__


# -- limits ------------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class LimitReached(ApplianceError):
    """Try again after `retry_after_s`."""

    retry_after_s: float = 1.0

    def message(self) -> str:
        return f"a limit of the box is reached; try again in {self.retry_after_s:.0f} s"

    __hash__ = Exception.__hash__


@dataclass(kw_only=True)
class QuotaExceeded(LimitReached):
    tenant: str
    quota: str

    def message(self) -> str:
        return f"tenant {self.tenant!r} has used up its quota of {self.quota}"

    __hash__ = Exception.__hash__


@dataclass(kw_only=True)
class QueueFull(LimitReached):
    application_id: str
    queue_len_max: int

    def message(self) -> str:
        return f"{self.queue_len_max} requests of {self.application_id!r} are waiting already"

    __hash__ = Exception.__hash__


@dataclass(kw_only=True)
class Overloaded(LimitReached):
    """It would be too late by what waits already: refused before it costs anything."""

    application_id: str
    expected_ms: float
    """Until it would be answered."""
    allowed_ms: float

    def message(self) -> str:
        return (
            f"so much waits that an answer of {self.application_id!r} is expected in {self.expected_ms:.0f} ms, and "
            f"may take {self.allowed_ms:.0f}; try again in {self.retry_after_s:.1f} s"
        )

    __hash__ = Exception.__hash__


class TooManyFailedKeys(LimitReached):
    def message(self) -> str:
        return "too many wrong keys from this address"


@dataclass(kw_only=True)
class TooManyConnections(LimitReached):
    """The tenant holds as many connections as one tenant may, and none of them is idle."""

    tenant: str
    connections_max: int

    def message(self) -> str:
        return f"tenant {self.tenant!r} has {self.connections_max} connections under way, as many as one tenant may"

    __hash__ = Exception.__hash__


# -- unavailable -------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Unavailable(ApplianceError):
    """The box cannot do this now, and it is not the caller's fault.

    `retry_after_s` None: to try again later is of no use, or nobody can say when.
    """

    retry_after_s: float | None = 1.0

    def message(self) -> str:
        return "the box cannot do this now; try again"

    __hash__ = Exception.__hash__


class Busy(Unavailable):
    """The bodies of the requests under way fill the memory that is set aside for them."""

    def message(self) -> str:
        return "the box is handling as many requests as it can hold; try again"


class Blocker(TypedDict):
    """Who holds memory that a refused request would need; plain members, as they stand in the problem document."""

    application: str | None
    """None: another tenant's, or nobody's."""
    mb: float
    why: str
    """`in its window`, `pinned`, `loading`, `guaranteed`, `kept by the policy` or `other programs`."""
    until_s: float | None
    """In so many seconds that will be over; None where nobody can say."""


@dataclass(kw_only=True)
class OutOfMemory(Unavailable):
    """The least that would have answered found no room.

    `variant` is that one, `need_bytes` what its load needs, `budget_bytes` what models may take.
    """

    build_id: str
    need_bytes: int
    budget_bytes: int
    variant: str = ""
    free_bytes: int = 0
    can_fit: bool = True
    """False: not even if nothing else were in memory."""
    blockers: list[Blocker] = field(default_factory=list)

    def message(self) -> str:
        if not self.can_fit:
            return f"no room in memory, ever: {self._need()}, {self._limit()}; {self._never()}"
        return f"no room in memory now: {self._need()}, {self._limit()}{self._held()}; {self._again()}"

    def _need(self) -> str:
        return f"at the least {self.variant or 'the model'} needs {megabytes(self.need_bytes)}"

    def _limit(self) -> str:
        """What stands against the need."""
        if not self.can_fit:
            return f"models may take {megabytes(self.budget_bytes)}, or the part of it that the model's owner may take"
        return f"and {megabytes(self.free_bytes)} of {megabytes(self.budget_bytes)} are free"

    def _never(self) -> str:
        return "raise the memory budget, or upload a smaller variant"

    def _held(self) -> str:
        return "".join(f"; {_held_by(blocker)}" for blocker in self.blockers)

    def _again(self) -> str:
        if self.retry_after_s is None:
            return "nobody can say until when: unload a model, or upload a smaller variant"
        return f"try again in {max(1, ceil(self.retry_after_s))} s"

    __hash__ = Exception.__hash__


class NoRoomToRun(OutOfMemory):
    """The model is there, but a run of inputs as large as these does not fit beside it."""

    def _need(self) -> str:
        return f"a run of inputs as large as these takes up to {megabytes(self.need_bytes)} beside the model"

    def _limit(self) -> str:
        if not self.can_fit:
            return f"models and runs may take {megabytes(self.budget_bytes)} together"
        return f"and {megabytes(self.free_bytes)} are free"

    def _never(self) -> str:
        return "send smaller inputs, or raise the memory budget"

    def _again(self) -> str:
        return "try again when others have run, send smaller inputs, or unload a model"


def megabytes(count: int) -> str:
    """Bytes for a person, in units of 10⁶."""
    mb = count / BYTES_PER_MB
    return f"{mb:.1f} MB" if mb >= 0.1 or not mb else f"{mb:.6f}".rstrip("0") + " MB"


def _held_by(blocker: Blocker) -> str:
    who = blocker["application"] or ("others" if blocker["why"] == "other programs" else "another's application")
    until = blocker["until_s"]
    return f"{who} {blocker['mb']:.6g} MB ({blocker['why']}{'' if until is None else f', {until:.3g} s more'})"


@dataclass(kw_only=True)
class CeilingReached(OutOfMemory):
    """There may be room in the budget, but not below the ceiling of the tenant that owns the model."""

    tenant: str
    held_bytes: int
    ceiling_bytes: int

    def _limit(self) -> str:
        return f"tenant {self.tenant!r} holds {megabytes(self.held_bytes)} and may hold {megabytes(self.ceiling_bytes)}"

    def _never(self) -> str:
        return "upload a smaller variant, or have the ceiling raised"

    def _again(self) -> str:
        again = "" if self.retry_after_s is None else f"{super()._again()}, or "
        return f"{again}unload another of its models, upload a smaller variant, or have the ceiling raised"

    def as_seen_by(self, tenant: str) -> OutOfMemory:
        """What others hold is nobody's business, also where they share a model."""
        if tenant == self.tenant:
            return self
        known = {f.name: getattr(self, f.name) for f in fields(OutOfMemory)}
        return OutOfMemory(**known)

    __hash__ = Exception.__hash__


@dataclass(kw_only=True)
class LoadFailed(Unavailable):
    build_id: str
    reason: str

    def message(self) -> str:
        return f"the variant could not be loaded: {self.reason}"

    __hash__ = Exception.__hash__


@dataclass(kw_only=True)
class ProcessorLost(Unavailable):
    processor: str

    def message(self) -> str:
        return f"processor {self.processor!r} is lost"

    __hash__ = Exception.__hash__


@dataclass(kw_only=True)
class VariantQuarantined(Unavailable):
    """It crashed again and again, and is not run until its owner releases it."""

    retry_after_s: float | None = None
    name: str
    reason: str

    def message(self) -> str:
        return f"variant {self.name!r} is quarantined: {self.reason}; release it, or name another variant"

    __hash__ = Exception.__hash__


@dataclass(kw_only=True)
class NotConfined(Unavailable):
    """Imports are refused: their processes would not be confined as the settings require."""

    retry_after_s: float | None = None
    missing: str

    def message(self) -> str:
        return (
            f"imports are refused because this machine lacks {self.missing}; have it provided, or set imports.confine "
            "to 'auto' to import without"
        )

    __hash__ = Exception.__hash__


class ShuttingDown(Unavailable):
    def message(self) -> str:
        return "the box is shutting down"


class StorageFull(Unavailable):
    def message(self) -> str:
        return "the disk of the box is full; free space in the state folder and try again"


class StorageBusy(Unavailable):
    """Another program holds the database for longer than the box waits."""

    def message(self) -> str:
        return "another program holds the box's database; end it, or try again"


@dataclass(kw_only=True)
class StorageFailed(Unavailable):
    """The state folder or its database cannot be used as it is; waiting is of no use."""

    retry_after_s: float | None = None
    reason: str

    def message(self) -> str:
        return (
            f"the box's state folder cannot be used ({self.reason}); see that the box may write to it and that its "
            f"disk is sound, or restore a backup into a new folder with 'appliance restore'"
        )

    __hash__ = Exception.__hash__


# -- running -----------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class DeadlineExceeded(ApplianceError):
    """Answered without being run: it could no longer be in time.

    `waited_ms` counts from its arrival, `decoded_ms` is the part of it that reading and decoding the input took,
    `expected_ms` the run time that it went by; None where it did not come so far.
    """

    waited_ms: float
    expected_ms: float | None = None
    decoded_ms: float | None = None

    def message(self) -> str:
        decoded = "" if self.decoded_ms is None else f" ({self.decoded_ms:.1f} ms of them to read and decode the input)"
        waited = f"the deadline cannot be kept: {self.waited_ms:.1f} ms have passed{decoded}"
        run = "" if self.expected_ms is None else f", and a run is expected to take {self.expected_ms:.1f} ms"
        return f"{waited}{run}; allow more time, or take a faster variant"

    __hash__ = Exception.__hash__


@dataclass(kw_only=True)
class RunFailed(ApplianceError):
    """The processor broke off the run; `reason` is its own word."""

    variant_id: str
    reason: str

    def message(self) -> str:
        return f"the model failed on this input: {self.reason}"

    __hash__ = Exception.__hash__


@dataclass(kw_only=True)
class RunRefused(RunFailed):
    """The network cannot compute these values, for example an index beyond a table, or only with more memory than a
    run may take. The same again fails again; other values may not.
    """

    __hash__ = Exception.__hash__


@dataclass(kw_only=True)
class RunCrashed(RunFailed):
    """The run ended the process that it was in, or another run did; the box and other tenants go on."""

    def message(self) -> str:
        return (
            f"the model's process ended during this run ({self.reason}); the model is loaded anew at the next request"
        )

    __hash__ = Exception.__hash__


@dataclass(kw_only=True)
class RunStopped(RunFailed):
    """The run took longer than it may, and was stopped."""

    def message(self) -> str:
        return f"the run was stopped: {self.reason}"

    __hash__ = Exception.__hash__
