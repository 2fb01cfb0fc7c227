"""One inference asked for, and its answer. Tensors are numpy arrays, but the domain does not look into them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from appliance.domain.catalogue import Evidence
from appliance.domain.notable import Spent
from appliance.domain.slots import NO_SLOT, Slot

Tensors = Mapping[str, Any]
"""name → numpy.ndarray."""


class RunMeter(Protocol):
    """Is told what processors spend on somebody's requests."""

    def ran(self, kind: str, took_ns: int, at_once: int = 1) -> None:
        """A run has ended on a processor of this kind; of one that was shared, the part that its rows have. `at_once`:
        runs that were under way, itself among them.
        """
        ...


@dataclass(slots=True)
class FrameStanding:
    """Of a frame of a pipeline, known to all its items."""

    is_lost: bool = False
    """Not all of them can be in time any more."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Runs of one call beside a request's own: the call counts once, with its last run."""

    is_last: bool
    is_warm: bool
    """Earlier ones found a variant in memory."""
    spent: Spent
    """What earlier ones took."""


@dataclass(slots=True)
class Request:
    """What the engine is asked. `deadline_ns` is absolute on the clock's monotonic scale."""

    application_id: str
    tenant: str
    inputs: Tensors
    arrival_ns: int
    id: str = ""
    variant: str | None = None
    """A variant by name; None leaves the choice to the box."""
    outputs: Sequence[str] | None = None
    """Requested outputs; None = all."""
    deadline_ns: int | None = None
    priority: int = 0
    """Higher runs earlier among the requests of its tenant and application that wait."""
    runs_late: bool = False
    """It is answered whenever it is done; its deadline says only how urgent it is."""
    sequence_id: str | None = None
    sequence_start: bool = False
    sequence_end: bool = False
    decoded_ns: int = 0
    """What reading and decoding its input took, from its arrival to its admission."""
    began_cold: bool = False
    """No variant was in memory when its head came: what it woke then may be there by now."""
    source: int = 0
    """The connection that it came over, as a number of its own; 0: not known."""
    steps: Steps | None = None
    """Of a sound or a text in several runs; None: the call has one run."""
    is_admitted: bool = False
    """One of the runs of a call that was admitted as a whole: it takes nothing more of any quota."""
    is_frame: bool = False
    """Of a session: no forecaster learns of it."""
    slot: Slot = NO_SLOT
    """Statement of a plan about the run of the request."""
    started_ns: int = 0
    """When a processor began with it; 0: it waits."""
    run_rows: int = 0
    """Rows of the run that computes the request, with rows of other requests; 0 while the request waits."""

    runs_alone: bool = False
    """Its rows share no run, and are not padded: they did or were, and the run failed or was given up."""
    is_item: bool = False
    """Of a pipeline: given up at its deadline, whatever its application says of late requests."""
    beyond_plan: bool | None = None
    """Of an item of a pipeline: whether its plan did not count on it; then it waits behind those of other tenants that
    are planned. None: no plan counts on any of them."""
    frame: FrameStanding | None = None
    """Of an item of a pipeline: its frame's."""
    behind_ns: int = 0
    """Of an item of a pipeline: how long those of its frame that come after it at its stage keep all workers busy."""
    meter: RunMeter | None = None
    """Who pays for its runs; None: whoever calls applications one by one."""
    is_read: bool = False
    """A task reads the outputs, so that it is enough when what it reads stays what it is; else they are the answer."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of its inputs."""
        return {name: tensor.shape for name, tensor in self.inputs.items()}

    @property
    def drop_ns(self) -> int | None:
        """When it is given up; None = never."""
        return None if self.runs_late else self.deadline_ns


@dataclass(frozen=True, slots=True)
class RanPart:
    """A part of a network as it ran for one request. `group` of processors, and the kind of the one of them."""

    number: int
    group: str
    kind: str
    took_ns: int


@dataclass(slots=True)
class Result:
    """The answer and where its time went."""

    outputs: dict[str, Any]
    variant_id: str
    variant: str
    variant_number: int
    warm: bool
    """Whether some variant of the application was resident at admission (EM-02)."""
    queue_ns: int = 0
    load_ns: int = 0
    compute_ns: int = 0
    wake_ns: int = 0
    """Until a build that slept was awake; `load_ns` is 0 then."""
    parts: Sequence[RanPart] = ()
    """What ran where, of a network that ran in parts, in their order; empty: it ran whole."""
    build_id: str = ""
    """What answered."""
    evidence: Evidence = Evidence.ORIGINAL
    """Inputs on which the variant's accuracy was measured."""
    doubt: str = ""
    """Why the answer may be wrong, for a person; empty where the variant is verified."""


class DeferredState(StrEnum):
    """Where a request that is answered later is."""

    WAITING = "waiting"
    """No processor has begun with it: it is decoded, its variant is loaded, or others go first."""
    RUNNING = "running"
    """A processor has begun with it; the answer is written after."""
    DONE = "done"
    """Its result is there."""
    FAILED = "failed"
    """It has none; the problem says why."""
