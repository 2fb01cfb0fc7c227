"""Processors as the scheduler sees them, and the memory they share."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from appliance.domain.catalogue import Shapes
from appliance.domain.request import Tensors
from appliance.domain.runs_at_once import RunsAtOnce
from appliance.domain.states import ProcessorState

EMULATED = "emulated"
"""The kind of a processor that is not there: what it answers says so."""
CPU_KINDS = frozenset({"cpu", "openvino", "xnnpack"})
"""Kinds that compute on the machine's own cores; others are accelerators."""

HALF_KINDS = frozenset({"dla"})
"""Kinds that compute in half precision at most, whatever a network is in."""


@dataclass(frozen=True, slots=True)
class ProcessorDescription:
    """A compute device: how many runs it takes at once, and which memory its builds occupy."""

    name: str
    kind: str
    workers: int
    threads_per_run: int
    memory_domain: str
    fingerprint: str
    """Library versions and device; a prepared form is valid for exactly one fingerprint."""
    cores: tuple[int, ...] = ()
    """Those that its runs are pinned to, by number; empty: none, they run where the system puts them."""
    reduced: str = ""
    """A smaller number format that it computes in where it is told to, for example `bf16`; empty: it has none."""
    at_once: RunsAtOnce | None = None
    """Runs at once that an import times on it; None: a profile needs no such times."""


@dataclass(frozen=True, slots=True)
class ProcessorStatus:
    """What a processor does now. `reason`: why it takes no runs. `runs` and `busy_ms` since the start of the box."""

    description: ProcessorDescription
    state: ProcessorState
    reason: str = ""
    runs: int = 0
    busy_ms: float = 0.0
    mean_batch: float | None = None
    """Rows of a run of a whole network, since the start of the box; None: there was none."""
    memory_used_bytes: int | None = None
    """What builds take of the device's own memory; None where it has none."""
    memory_budget_bytes: int | None = None
    """What they may take there; None where nobody says."""
    takes_guarded: bool = True
    """Whether builds that need a guard may run there."""


@dataclass(frozen=True, slots=True)
class PreparedForm:
    """A build on disk, ready for a quick load by one kind of processor.

    `resident_bytes` and `peak_bytes` are None until measured; then the loader assumes a multiple of `size_bytes`.
    """

    build_id: str
    path: str
    size_bytes: int
    optimised: bool
    """True when the graph was optimised for this machine at import and must not be optimised again."""
    resident_bytes: int | None = None
    peak_bytes: int | None = None
    asleep_bytes: int | None = None
    """What stays of it when it sleeps; None until measured."""
    kind: str = "cpu"
    """Of the processors that it is prepared for."""
    guarded_for: str | None = None
    """The tenant in whose guard it runs; None = in the service."""
    computes_in: str = ""
    """The smaller number format that it was compiled for; empty: that of the network."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What another kind of processor must compute alike: the same build on the first kind. `difference_max`: of its
    outputs, as a share of their norm.
    """

    form: PreparedForm
    difference_max: float
    original: PreparedForm | None = None
    """The network in full precision on the first kind, of a quantized one: who computes more differently than
    `difference_max`, but no further from this than the first kind does, is as good."""


@dataclass(frozen=True, slots=True)
class TriedForm:
    """What one load and run of a build has shown. `reason`: why it cannot serve; empty where it can."""

    resident_bytes: int = 0
    peak_bytes: int = 0
    asleep_bytes: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MeasureCase:
    """One thing to time: real or synthetic inputs of one batch size."""

    batch: int
    inputs: Tensors
    repeated: Mapping[str, int] = field(default_factory=dict)
    """Input → the axis along which its rows are repeated until there are `batch`; empty: they are there."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How large the inputs of a build may become, and what its review has found; measuring completes both."""

    steps: tuple[Shapes, ...] = ()
    """Shapes to try, each within the next, larger than those of the first case."""
    needed: int = 0
    """So many of the steps are tried whatever they cost; the others end with the first that costs too much."""
    stated: int = 0
    """So many of the steps lead to what the tenant asked for: where the last of them cannot be run, nothing can."""
    hazards: tuple[str, ...] = ()
    unless_all_run: tuple[str, ...] = ()
    """What is a hazard, too, unless every shape within the largest has been run."""
    free: Mapping[str, tuple[int, ...]] | None = field(default_factory=dict)
    """Free axes of each input; None where they leave too many shapes to run them all."""
