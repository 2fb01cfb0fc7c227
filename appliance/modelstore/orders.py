"""What goes into an import stage and what comes out: the contract between the importer and the child process.

Plain frozen dataclasses that travel as JSON (`to_json`, `from_json`). Paths are absolute strings. Nothing here imports
onnx or ONNX Runtime, so the service may import it freely.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

from appliance.domain.catalogue import Accuracy, DefaultValue, Precision, Shapes, TaskSpec, TensorSpec
from appliance.domain.padding import Padding
from appliance.domain.trial import Comparison

MIB = 2**20
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Size:
    """Input size of a picture, pixels."""

    height: int
    width: int


@dataclass(frozen=True, slots=True)
class Extent:
    """Sizes that free axes take in one run."""

    batch: int = 1
    height: int = 224
    width: int = 224
    length: int = 16
    """Of every other free axis: tokens, audio samples."""


# -- unpack ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnpackOrder:
    """Open an upload: a bare ONNX file, a zip, or a tar (plain, gzip, bzip2, xz), told apart by content."""

    source: str
    target: str
    """Folder that the files go to; made when missing."""
    bytes_max: int = 16 * GIB
    """All unpacked files together."""
    entries_max: int = 10_000
    ratio_max: float = 200.0
    """Unpacked bytes per packed byte; above it, past the first 64 MiB, the archive is taken for a bomb."""


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What an upload held.

    Every path lies inside the order's `target`, but for a bare ONNX file, which stays where it is.
    """

    model: str
    """The .onnx file; its external data lies in the same folder."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """metadata.json as it stands."""
    labels: tuple[str, ...] = ()
    """Lines of labels.txt."""
    assets: Mapping[str, str] = field(default_factory=dict)
    """File name to path of what tasks need beside the graph: tokenizer.json."""
    calibration: tuple[str, ...] = ()
    """Inputs without truth: calibration/*.{jpg,jpeg,png,webp,bmp,gif,tif,tiff,wav,txt,json,npz}, sorted."""
    evaluation: str | None = None
    """Folder with truth.json and the files it names."""
    evaluation_samples: int = 0
    unused: str = ""
    """Which files of the two folders are no samples, and why, for a person; empty: all are."""


# -- inspect -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InspectOrder:
    """Check a hostile ONNX file and write a normalised copy; external data is taken from the folder of `source`
    only.
    """

    source: str
    target: str
    """Folder for `model.onnx` and, of a large network, `model.bin`; made when missing."""
    task: TaskSpec = field(default_factory=TaskSpec)
    calibration: tuple[str, ...] = ()
    """Inputs of the tenant: the first that the task reads shows which values the network takes."""
    assets: Mapping[str, str] = field(default_factory=dict)
    """As in `tasks.base.Target`."""
    ladder_max: int = 3
    """Most input sizes of a model with free height and width."""
    batch_max: int = 8
    """Largest batch of a model with a free batch axis."""
    tensor_bytes_max: int = 2 * GIB
    """Largest single tensor that the graph may declare or produce for one request."""
    rewrite_bytes_max: int = 600 * MIB
    """Networks with more weights keep opset and constants: rewriting holds several copies in memory."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is known of a model once it has been checked, normalised and run once."""

    model: str
    """The normalised file."""
    files: tuple[str, ...]
    """The normalised file first, then its external data."""
    size_bytes: int
    """Of `files` together."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    axes: Mapping[str, tuple[str, ...]]
    """Role of each axis of each input: batch, channel, height, width, sequence, or empty."""
    opset: int
    opset_uploaded: int
    ir_uploaded: int
    ops: Mapping[str, int]
    """Histogram of operator types, subgraphs included."""
    family: str
    """convolution, transformer, recurrent or other: decides how int8 is made."""
    weights: str
    """Number format of the weights as uploaded: fp32, fp16, bf16, int8 (weight-only or QDQ), or mixed."""
    weights_bytes: int
    parameters: int
    metadata_props: Mapping[str, str]
    batch_max: int
    """1 where the graph fixes the batch or a batch of 2 gave other answers than two runs; else that of the order."""
    ladder: tuple[Size, ...] = ()
    """Input sizes that ran, the full one first; empty when the graph fixes the size or the task has no picture."""
    trial: Extent = field(default_factory=Extent)
    """Sizes at which it ran."""
    run_ms: float = 0.0
    """Processor time of one run at full size on one thread: an estimate, not a profile."""
    notes: tuple[str, ...] = ()
    """What was changed or is worth knowing, sentences for the tenant."""
    index_limits: Mapping[str, int] = field(default_factory=dict)
    """As in `TaskSpec`."""
    examples: Mapping[str, DefaultValue] = field(default_factory=dict)
    """As in `TaskSpec`."""
    defaults: Mapping[str, DefaultValue] = field(default_factory=dict)
    """As in `TaskSpec`."""

    @property
    def precision(self) -> Precision:
        """Return the precision of the network as uploaded; FP32 stands for all formats but FP16."""
        return Precision.FP16 if self.weights == "fp16" else Precision.FP32

    @property
    def original(self) -> "MadeVariant":
        """Return the network as uploaded, at its full size."""
        full = self.ladder[0] if self.ladder else None
        return MadeVariant(
            name=self.precision.value,
            precision=self.precision,
            path=self.model,
            size_bytes=self.size_bytes,
            inputs=self.inputs,
            outputs=self.outputs,
            height=full.height if full else None,
            width=full.width if full else None,
            batch_max=self.batch_max,
            files=self.files,
            is_original=True,
        )


# -- make --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MakeOrder:
    """Make every rung of one precision. That of the upload is the normalised file itself and costs nothing."""

    inspection: Inspection
    task: TaskSpec
    precision: Precision
    target: str
    """Folder for the new file; made when missing."""
    calibration: tuple[str, ...] = ()
    """Media or npz files; for image tasks any picture will do."""
    assets: Mapping[str, str] = field(default_factory=dict)
    """As in `tasks.base.Target`."""
    calibration_samples_max: int = 32
    seconds_max: float = 240.0
    """Time after which no further attempt is begun."""


@dataclass(frozen=True, slots=True)
class MadeVariant:
    """One precision × input size. Rungs of one precision share the file."""

    name: str
    """`int8` at full size, else `int8-240x320` (height x width)."""
    precision: Precision
    path: str
    size_bytes: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    height: int | None = None
    width: int | None = None
    batch_max: int = 1
    files: tuple[str, ...] = ()
    """`path` first, then its external data (large networks only)."""
    notes: str = ""
    """How it was made, a sentence for the tenant."""
    is_original: bool = False
    """As in `Variant`."""


# -- review ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReviewOrder:
    """Look for what speaks against running a stored graph inside the service."""

    source: str
    """A file that an import has made; weights that lie apart are beside it."""
    inputs: tuple[TensorSpec, ...] = ()
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Role of each axis of each input."""
    task: TaskSpec = field(default_factory=TaskSpec)
    trial: Extent | None = None
    """Sizes at which it runs; None: not known."""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """Sentences for a person; the first two empty: its operators are harmless."""

    hazards: tuple[str, ...]
    unless_all_run: tuple[str, ...] = ()
    """What is no hazard where every shape that is allowed has been run."""
    dependence: str = ""
    """Why rows of several requests may not share a run; empty: the graph keeps them apart."""

    def joined(self, other: "Reviewed") -> "Reviewed":
        """What speaks against either."""
        hazards = tuple(dict.fromkeys((*self.hazards, *other.hazards)))
        unless_all_run = tuple(dict.fromkeys((*self.unless_all_run, *other.unless_all_run)))
        return Reviewed(hazards, unless_all_run, self.dependence or other.dependence)


@dataclass(frozen=True, slots=True)
class Made:
    """The rungs of one precision, or none and the reason why there are none."""

    variants: tuple[MadeVariant, ...]
    reason: str = ""
    reviewed: Reviewed = Reviewed(("it was not reviewed",))
    """Of the file that all of them share."""


# -- evaluate ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EvaluateOrder:
    """Measure variants, best those of one precision together: they share one session, and the reference runs once."""

    inspection: Inspection
    task: TaskSpec
    variants: tuple[MadeVariant, ...]
    evaluation: str | None = None
    """Folder with truth.json; without it, fidelity to the original is measured."""
    calibration: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()
    """Those of `calibration` that no variant was calibrated with; empty: each was."""
    assets: Mapping[str, str] = field(default_factory=dict)
    """As in `tasks.base.Target`."""
    samples_max: int = 64
    seconds_max: float = 120.0
    """Time after which no further sample is begun."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One entry for each variant of the order, in its order."""

    accuracies: tuple[Accuracy | None, ...]
    """None where the variant could not be run."""
    reasons: tuple[str, ...]
    """Why not; empty where it could."""
    paddings: tuple[Padding | None, ...]
    """How inputs of free size may be made larger; None: they may not, or there are none."""


# -- trial -------------------------------------------------------------------------------------------------------------


PIXELS = "pixels"
"""Name of the array of a picture that came decoded."""


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """A request and its answer. Bytes are in base 64, arrays as `arrays.packed` writes them."""

    body: str = ""
    content_type: str = ""
    pixels: str = ""
    """The array of a picture that came decoded; its size before, where it was made smaller, is in the next two."""
    width: int = 0
    height: int = 0
    read: Mapping[str, Any] | None = None
    """What the task read in the outputs; None: the answer is tensors."""
    inputs: str = ""
    outputs: str = ""


@dataclass(frozen=True, slots=True)
class TrialOrder:
    """Run a variant on requests that another one has answered, and compare."""

    model: str
    files: tuple[str, ...]
    """The model with what lies beside it."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    size: Size | None
    task: TaskSpec
    requests: tuple[TrialRequest, ...]
    assets: Mapping[str, str] = field(default_factory=dict)
    shape_max: Shapes = field(default_factory=dict)
    is_original: bool = False
    """Whether this is the original, and the requests were answered by the variant that it is compared with."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of it."""

    comparisons: tuple[Comparison, ...]
    """Of the requests in which there was something to compare."""
    metric: str
    cpu_s: float
    """Processor time that this took."""


# -- dissect -----------------------------------------------------------------------------------------------------------

WITH_LIMITS = ("dla",)
"""Kinds of processors whose vendors' limits are known (`modelstore.stages.vendor_limits`)."""


@dataclass(frozen=True, slots=True)
class DissectOrder:
    """Find what of a stored graph may run where: rewrite equivalents, group what must stay together, and write a small
    network for each sort of operator, by which kinds of processors are asked.
    """

    source: str
    """A file that an import has made; weights that lie apart are beside it."""
    target: str
    """Folder for `model.onnx`, its weights and the small networks; made when missing."""
    feeds: str
    """File with inputs (`modelstore.arrays`) of the run that costs are worked out for."""
    tables: tuple[str, ...] = ()
    """Of `WITH_LIMITS`: kinds that are not there; what they take is looked up."""


@dataclass(frozen=True, slots=True)
class DissectedOperator:
    """What a cut never goes through: a node, with what quantizes it and with what its constants come from."""

    name: str
    nodes: tuple[str, ...]
    """In an order in which they can run."""
    inputs: tuple[str, ...]
    """Operators whose results it takes."""
    flops: float
    """Floating-point operations, or as many of another sort, of one run."""
    probes: tuple[int, ...] | None
    """Which of the small networks must run for it to run; None: only where the whole network does (control flow)."""
    tables: tuple[str, ...] = ()
    """Kinds whose vendors say that they take it."""


@dataclass(frozen=True, slots=True)
class Dissected:
    """Operators in an order in which they can run."""

    model: str
    """The rewritten graph; its weights are apart, so that all parts of it share them."""
    operators: tuple[DissectedOperator, ...]
    probes: tuple[str, ...]
    """The small networks, one file each."""


# -- cut ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CutOrder:
    """Cut a dissected network into units, write each as a file, and see that they compute what the whole does."""

    model: str
    """As dissected; its parts are written beside it."""
    target: str
    """Its folder."""
    operators: tuple[DissectedOperator, ...]
    kinds: tuple[tuple[str, ...], ...]
    """The kinds of processors that run each operator."""
    feeds: tuple[str, ...]
    """Files with inputs (`modelstore.arrays`), one for each batch, the smallest first."""
    ops_min: int = 7
    """Units of fewer operators join a neighbour where that costs no other unit a kind; 1: they do not."""
    units_max: int = 16
    """Units of a network; 0: no bound."""


@dataclass(frozen=True, slots=True)
class CutUnit:
    """One unit as a file. `inputs` and `outputs` name tensors of the whole network."""

    path: str
    size_bytes: int
    """Of the file and of its share of the weights."""
    operators: int
    op_types: Mapping[str, int]
    kinds: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    flops: float
    tensor_bytes: int
    """Of its inputs and outputs in the run that costs are worked out for."""


@dataclass(frozen=True, slots=True)
class CutMade:
    """Units in an order in which they can run; none where the network stays whole, and why."""

    units: tuple[CutUnit, ...]
    feeds: tuple[str, ...] = ()
    """Files with every tensor that passes between units, one for each batch of the order."""
    reason: str = ""


ORDERS: Mapping[str, tuple[type, type]] = {
    "unpack": (UnpackOrder, Unpacked),
    "inspect": (InspectOrder, Inspection),
    "make": (MakeOrder, Made),
    "review": (ReviewOrder, Reviewed),
    "evaluate": (EvaluateOrder, Evaluated),
    "trial": (TrialOrder, Tried),
    "dissect": (DissectOrder, Dissected),
    "cut": (CutOrder, CutMade),
}
"""Stage name to (what it takes, what it gives)."""

Data = TypeVar("Data")
PATH_FIELDS = frozenset(
    {"source", "target", "model", "files", "path", "assets", "calibration", "held_out", "evaluation", "feeds"}
)


def paths_of(value: Any) -> Iterator[str]:
    """Every path that an order or an answer names, nested ones too."""
    for name in value.__dataclass_fields__:
        held = getattr(value, name)
        if name in PATH_FIELDS and held is not None:
            yield from [held] if isinstance(held, str) else held.values() if isinstance(held, Mapping) else held
        elif name == "inspection":
            yield from paths_of(held)
        elif name == "probes" and isinstance(value, Dissected):
            yield from held
        elif name in ("variants", "units"):
            for one in held:
                yield from paths_of(one)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def to_json(value: Any) -> dict[str, Any]:
    """A dataclass of this module as a dict of JSON values."""
    kind: Any = type(value)
    dumped: dict[str, Any] = _adapter(kind).dump_python(value, mode="json", warnings=False)
    return dumped


def from_json(kind: type[Data], value: Mapping[str, Any]) -> Data:
    """The dataclass back from its JSON form.

    Raises: pydantic.ValidationError when the form does not fit.
    """
    adapter = _adapter(kind)  # type: ignore[arg-type]  # mypy doubts that a generic class is hashable
    made: Data = adapter.validate_python(value)
    return made
