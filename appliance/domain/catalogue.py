"""What tenants bring and what the box makes of it: models, variants, applications, and what was measured of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from appliance.domain.accuracy import ACCURACY, UNMEASURED_POINTS, meaning_of, points, share
from appliance.domain.errors.unavailable import UPLOAD_AGAIN
from appliance.domain.isolation import Isolation
from appliance.domain.padding import Padding
from appliance.domain.parts import Cut
from appliance.domain.states import VariantState
from appliance.domain.trial import Trial, Verdict

DEFAULT_TENANT = "default"
WATCHED_MIN = 0.5
"""Least agreement that samples promise of a variant that is watched on requests, 0 to 1."""
SLO_MS_MAX = 3_600_000.0
"""An hour, as of a request's own timeout; JSON's readers take `Infinity`, with which no deadline can be computed."""


class TaskKind(StrEnum):
    """What a model does for its caller; decides decoding, post-processing and the metric."""

    IMAGE_CLASSIFICATION = "image-classification"
    OBJECT_DETECTION = "object-detection"
    FACE_DETECTION = "face-detection"
    TEXT_DETECTION = "text-detection"
    TEXT_RECOGNITION = "text-recognition"
    IMAGE_EMBEDDING = "image-embedding"
    TEXT_EMBEDDING = "text-embedding"
    VOICE_ACTIVITY = "voice-activity"
    TENSOR = "tensor"


class Late(StrEnum):
    """What becomes of an application's requests at their deadline."""

    DROP = "drop"
    """Refused at the deadline, wherever they are; not begun when they could not end in time."""
    RUN = "run"
    """Answered whenever they are done, and counted as late."""


class Prefer(StrEnum):
    """Which of the variants that keep an application's promises answers a request that names none."""

    BALANCED = "balanced"
    """The fastest of those that are as good as the most accurate one, as far as that is known."""
    ACCURACY = "accuracy"
    """The most accurate one."""
    SPEED = "speed"
    """The fastest of those that reach the application's least accuracy."""


class Unverified(StrEnum):
    """Whether the box may choose a variant of which nothing is known on real inputs (`Variant.is_verified`)."""

    NEVER = "never"
    """An unverified variant answers requests that name it, and no others."""
    ALLOW = "allow"
    """An unverified variant is chosen as any other, but for one that has disagreed with the original on requests."""


class Verify(StrEnum):
    """Whether unverified variants are tried on an application's requests."""

    ON = "on"
    """While the box is idle, beside what answered: a variant that agrees with the original becomes verified."""
    OFF = "off"
    """No request of the application is kept for a comparison."""


class Evidence(StrEnum):
    """Inputs on which a variant's accuracy was measured."""

    ORIGINAL = "original"
    """None are needed: the variant is the network that the tenant uploaded."""
    SAMPLES = "samples"
    """Labelled samples, or calibration samples of the tenant that the variant was not calibrated with."""
    TRAFFIC = "traffic"
    """Requests, on which a trial has compared it with the original (`domain.trial`)."""
    STATED = "stated"
    """A scenario states the figure."""
    NOISE = "noise"
    """Synthetic inputs, which prove nothing of real ones."""
    CALIBRATION = "calibration"
    """The samples that the variant was calibrated with, which prove nothing of others."""
    DISAGREED = "disagreed"
    """Requests, on which it did not agree with the original: it is dismissed, or on trial again."""

    @property
    def is_proof(self) -> bool:
        """Whether a variant with this evidence is verified."""
        return self not in (Evidence.NOISE, Evidence.CALIBRATION, Evidence.DISAGREED)


def shown_by(trial: Trial) -> str:
    """Return what a trial has shown so far, for a person: of agreement on how many requests."""
    low, high = (round(100 * one, 2) for one in trial.interval)
    requests = f"{trial.samples} request{'s' if trial.samples != 1 else ''}"
    return f"agrees with the original to {100 * trial.agreement:.4g} % on {requests} ({low:g} to {high:g} % at 95 %)"


class Precision(StrEnum):
    """Number format of a variant's weights."""

    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"
    OWN = "own"
    """Uploaded by the tenant as it is."""


Shapes = Mapping[str, tuple[int, ...]]
"""Name of an input → its shape, without free dimensions."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output.

    `datatype` is the Open Inference Protocol's word (FP32, INT64, BYTES ...); -1 marks a free dimension.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """How a picture becomes a tensor: resize, reorder channels, (pixel − mean) / std in units of 0..255."""

    layout: str = "NCHW"
    """NCHW or NHWC."""
    channels: str = "RGB"
    """RGB, BGR or GRAY."""
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (255.0,)
    resize: str = "stretch"
    """stretch; letterbox (keep aspect, pad below and right); crop (short side, centre crop); keep-height (free
    width).
    """
    height: int | None = None
    width: int | None = None
    """Preferred input size, where the graph leaves it open."""
    multiple: int = 1
    """Sides must be multiples of this, where the graph leaves them open."""
    pad_value: float = 0.0
    """Pixel value (0..255) of padding."""


@dataclass(frozen=True, slots=True)
class StateSpec:
    """A tensor that a stateful model carries from one request of a sequence to the next, starting from zeros."""

    input: str
    output: str
    shape: tuple[int, ...]
    datatype: str = "FP32"


@dataclass(frozen=True, slots=True)
class DefaultValue:
    """What an optional input holds where a request leaves it out."""

    datatype: str
    """The Open Inference Protocol's word, as of the input."""
    shape: tuple[int, ...]
    values: tuple[int | float | str, ...]
    """In row-major order."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """Everything that turns bytes into tensors and outputs into answers, as the tenant stated it or the import
    inferred it.
    """

    kind: TaskKind = TaskKind.TENSOR
    labels: tuple[str, ...] = ()
    image: ImageSpec | None = None
    decoder: str = ""
    """Name of the output decoder (for example `softmax`, `nanodet`, `centerface`, `db`, `ctc`); empty: the task's
    default.
    """
    params: Mapping[str, float | str] = field(default_factory=dict)
    """Numbers of the decoder: score_min, iou_max, unclip ..., or of the encoder: sample_rate_hz, tokens_max ..."""
    state: tuple[StateSpec, ...] = ()
    constants: Mapping[str, float] = field(default_factory=dict)
    """Scalar inputs fed with a fixed value (for example the sample rate of a speech model)."""
    shape_max: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    """The largest shape that the tenant wants of an input; None, or an input left out: as large as the box chooses."""
    index_limits: Mapping[str, int] = field(default_factory=dict)
    """Integer inputs whose values index a table → what they must stay below in trial runs."""
    examples: Mapping[str, DefaultValue] = field(default_factory=dict)
    """Values of inputs in trial runs, where not every value will do: a shape, a scale, or values of a sample."""
    defaults: Mapping[str, DefaultValue] = field(default_factory=dict)
    """Optional inputs of the graph, which are none of `state` and `constants`."""

    @property
    def supplied(self) -> frozenset[str]:
        """Inputs that a request may leave out."""
        return frozenset((*self.constants, *self.defaults, *(state.input for state in self.state)))


@dataclass(frozen=True, slots=True)
class SampleScore:
    """What a variant's answer to one sample was worth: accuracy = Σ value_sum / Σ weight over the samples."""

    value_sum: float
    weight: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A variant's quality and what the figure means."""

    points: float
    """0 to 100 (`domain.accuracy`)."""
    metric: str
    """top-1, f1@0.5, 1-cer, cosine, agreement, retrieval ..."""
    against: str
    """`labels` or `fp32` (fidelity to the original)."""
    samples: int
    data: str = ""
    """What it was measured on, for a person."""
    scores: tuple[SampleScore, ...] = ()
    """Sample by sample, in the order of the set; empty where the metric is of the whole set, and where an earlier
    version
    measured."""
    sample_set: str = ""
    """Variants with the same one were measured on the same samples; empty: nobody knows."""
    evidence: Evidence = Evidence.SAMPLES
    loss_points: float | None = None
    """How many points it may be behind its model's most accurate variant, where that is stated (a scenario has no
    samples) or a trial has shown it; None: the scores show it (`domain.confidence`)."""
    trial: Trial | None = None
    """How the variant does on requests; None: it has not been tried on any."""
    unused: str = ""
    """How many of the samples that came could be used and why not all, for a person; empty: all were, or none came."""

    @property
    def share(self) -> float:
        """0 to 1: what the API and people are told."""
        return share(self.points)


@dataclass(frozen=True, slots=True)
class Latency:
    """Measured run time at one batch size, milliseconds."""

    batch: int
    p50_ms: float
    p99_ms: float
    concurrency: int = 1
    """So many runs of it were under way at once."""


@dataclass(frozen=True, slots=True)
class RunBound:
    """What a run with inputs of at most these shapes takes, beside the build itself."""

    shapes: Shapes
    run_ms: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Profile:
    """What a variant costs on one processor; sizes are what a child process that did only this had more
    of its own."""

    processor: str
    resident_bytes: int
    peak_bytes: int
    load_ms: float
    load_cold_ms: float
    latencies: tuple[Latency, ...]
    """One run at a time first, by batch; then those of several at once, by batch, where that was measured."""
    hazards: tuple[str, ...] | None = None
    """Why it must not run inside the service (`domain.isolation`); empty = harmless, None = never reviewed."""
    runs: tuple[RunBound, ...] = ()
    """From the smallest shapes to the largest, each within the next; empty = measured by an earlier version."""
    asleep_bytes: int | None = None
    """What stays of it when it sleeps; None = it cannot sleep, or was measured by an earlier version."""
    wake_ns: int | None = None
    """To wake it while its file is in the page cache; None as above."""
    kind: str = "cpu"
    """Of that processor."""
    computes_in: str = ""
    """A smaller number format than the network's, for example `bf16`; empty: its own."""
    shared_rows_max: int = 1
    """Rows of several requests that may share a run: it was shown for so many that none influences another; 1 = none
    may, or it was not looked at."""

    @property
    def wake_ms(self) -> float | None:
        return None if self.wake_ns is None else self.wake_ns / 1e6

    @property
    def alone(self) -> tuple[Latency, ...]:
        """One run at a time, by batch."""
        return tuple(row for row in self.latencies if row.concurrency == 1)

    @property
    def has_several(self) -> bool:
        """Whether it was measured with several runs under way at once."""
        return any(row.concurrency > 1 for row in self.latencies)

    def p50_ms(self, batch: int = 1) -> float:
        """Median latency of the smallest profiled batch ≥ `batch`, else of the largest; of one run at a time."""
        rows = self.alone
        fitting = [row for row in rows if row.batch >= batch]
        return (fitting[0] if fitting else rows[-1]).p50_ms


@dataclass(frozen=True, slots=True)
class Variant:
    """One concrete build of a model: precision × input size; the unit that is chosen and loaded."""

    id: str
    model_id: str
    name: str
    precision: Precision
    content_sha256: str
    size_bytes: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    state: VariantState = VariantState.READY
    height: int | None = None
    width: int | None = None
    """Input size of this rung of the ladder; None where the graph or the caller decides."""
    accuracy: Accuracy | None = None
    profile: Profile | None = None
    """On the box's first kind of processor: what the import goes by, with what a review and trial runs have found."""
    other_profiles: tuple[Profile, ...] = ()
    """On its other kinds, as far as they are measured and compute the same."""
    reason: str = ""
    """Why it is excluded or failed; of one that is ready, why it was not excluded although another seems as good."""
    batch_max: int = 1
    shape_max: Shapes | None = None
    """The largest shape of each input that requests may have: what was measured. None = not measured yet."""
    number: int = 0
    """Which variant of its model it is, from 1; the store gives it and keeps it for the name. 0 = not stored yet."""
    cut: Cut | None = None
    """In which parts it runs on kinds of processors that do not run all of it; None = nobody has looked."""
    padding: Padding | None = None
    """How its inputs may be made larger; None = they may not, as far as is known."""
    is_original: bool = False
    """True for the network that the tenant uploaded, in the same number format and at full size."""
    inspected_ms: float | None = None
    """Milliseconds of one run of one item in the child that inspected the network, on one thread: what runs are
    expected to take until `profile` is measured. None = not timed then."""

    @property
    def input_px(self) -> int | None:
        """Longer side of the pictures that it takes; None where any will do."""
        if self.height and self.width:
            return max(self.height, self.width)
        for tensor in self.inputs:
            if len(tensor.shape) != 4:
                continue
            sides = tensor.shape[1:3] if tensor.shape[3] in (1, 3) else tensor.shape[2:4]
            if all(side > 0 for side in sides):
                return max(sides)
        return None

    @property
    def evidence(self) -> Evidence:
        """Inputs on which the variant's accuracy was measured."""
        if self.is_original:
            return Evidence.ORIGINAL
        return Evidence.NOISE if self.accuracy is None else self.accuracy.evidence

    @property
    def is_verified(self) -> bool:
        """Whether its losses were measured on real inputs and requests do not speak against it, or it has none."""
        return self.evidence.is_proof

    @property
    def is_off(self) -> bool:
        """Whether requests have shown that it does not agree with the original."""
        return self.evidence is Evidence.DISAGREED

    @property
    def doubt(self) -> str:
        """Return why answers of the variant may be wrong, for a person; empty where it is verified."""
        if self.is_verified:
            return ""
        trial = self.trial
        if not self.is_off or trial is None:
            on = "the samples that it was calibrated with" if self.evidence is Evidence.CALIBRATION else "noise"
            return f"{self.name} is unverified: its answers were compared on {on} only"
        standing = "dismissed" if trial.verdict is Verdict.DISMISSED else "on trial again"
        return f"{self.name} is {standing}: it {shown_by(trial)}"

    @property
    def agreement(self) -> float | None:
        """Return the mean agreement with the original, 0 to 1: on requests, else on samples without labels.

        None where neither was measured.
        """
        if self.is_original:
            return 1.0
        if self.trial is not None and self.trial.samples:
            return self.trial.agreement
        if self.accuracy is None or self.accuracy.against == "labels" or self.evidence is Evidence.NOISE:
            return None
        return self.accuracy.share

    @property
    def trial(self) -> Trial | None:
        """How it does on requests; None: it has not been tried on any."""
        return None if self.accuracy is None else self.accuracy.trial

    @property
    def awaits_trial(self) -> bool:
        """Whether requests may still show that it is worth choosing."""
        is_open = self.trial is None or self.trial.verdict is Verdict.RUNNING
        is_ready = self.state is VariantState.READY and self.accuracy is not None
        return is_ready and not self.is_verified and is_open

    @property
    def is_damaged(self) -> bool:
        """Whether the file of the variant is damaged. A variant with a sound prepared form serves all the same."""
        return UPLOAD_AGAIN in self.reason

    def may_have_been(self, content_sha256: str) -> bool:
        """Whether it was made of this content, also where it lost that to damage; True where nobody knows any more."""
        known = self.content_sha256 or self.reason.partition("(content ")[2].partition(")")[0]
        return not known or known == content_sha256

    @property
    def servable(self) -> bool:
        """Whether requests may run on it."""
        return self.state in (VariantState.READY, VariantState.EXCLUDED)

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """By kind of processor, the first one's first."""
        return () if self.profile is None else (self.profile, *self.other_profiles)

    @property
    def accuracy_points(self) -> float:
        """What every policy weighs, 0 to 100: as measured, unverified no more than a trial shows; else
        `UNMEASURED_POINTS`.
        """
        if self.accuracy is None:
            return UNMEASURED_POINTS
        if not self.is_verified and self.trial is not None:
            return min(self.accuracy.points, points(self.trial.agreement))
        return self.accuracy.points


@dataclass(frozen=True, slots=True)
class Model:
    """A task-level network with its variants."""

    id: str
    tenant: str
    name: str
    task: TaskSpec
    variants: tuple[Variant, ...] = ()
    shared: bool = False
    """Readable by every tenant."""
    assets: Mapping[str, str] = field(default_factory=dict)
    """File name → SHA-256 of what was uploaded beside the graph, for example `tokenizer.json`."""

    @property
    def original(self) -> Variant | None:
        """The network that the tenant uploaded; None: it does not serve."""
        return next((one for one in self.variants if one.is_original and one.servable), None)

    @property
    def trials(self) -> Mapping[str, Variant]:
        """Id of a variant that answers → the variant that is to be run beside it on the same request: beside the
        original the fastest that awaits trial, beside a variant that requests or samples have verified the original.
        """
        original = self.original
        if original is None:
            return {}
        awaiting = [one for one in self.variants if one.awaits_trial]
        found = {one.id: original for one in self.variants if self._is_watched(one)}
        if awaiting:
            found[original.id] = min(awaiting, key=lambda one: (one.profile is None, _p50_ms(one), one.number))
        return found

    @property
    def meaning(self) -> str:
        """What the qualities of the model's variants are called (`domain.accuracy`)."""
        measured = sorted((one for one in self.variants if one.accuracy), key=lambda one: not one.is_original)
        return self.meaning_of(measured[0]) if measured else ACCURACY

    def meaning_of(self, variant: Variant) -> str:
        """Return what the quality of a variant is called."""
        original = next((one.precision for one in self.variants if one.is_original), Precision.FP32)
        return ACCURACY if variant.accuracy is None else meaning_of(variant.accuracy.against, original)

    def promised(self, variant: Variant) -> float | None:
        """Return the agreement with the original, 0 to 1, that samples promise of a variant that they have verified.

        None: they have not verified it. Where both were measured on labels, they agree at least where both are right.
        """
        accuracy = variant.accuracy
        if accuracy is None or variant.evidence is not Evidence.SAMPLES:
            return None
        original = None if self.original is None else self.original.accuracy
        if accuracy.against == "labels" and original is not None:
            return max(0.0, original.share + accuracy.share - 1.0)
        return accuracy.share

    def _is_watched(self, variant: Variant) -> bool:
        promised = self.promised(variant)
        if promised is None:
            return variant.evidence is Evidence.TRAFFIC
        return promised >= WATCHED_MIN and variant.state is VariantState.READY


def _p50_ms(variant: Variant) -> float:
    return variant.profile.p50_ms() if variant.profile is not None and variant.profile.latencies else 0.0


@dataclass(frozen=True, slots=True)
class Application:
    """A tenant's registered use of a model."""

    id: str
    tenant: str
    name: str
    model_id: str
    latency_slo_ms: float | None = None
    accuracy_min: float = 0.0
    """Points, 0 to 100, as a variant's accuracy."""
    weight: float = 1.0
    """Its part of what its tenant gets, relative to the tenant's other applications."""
    shared: bool = False
    late: Late = Late.DROP
    prefer: Prefer = Prefer.BALANCED
    unverified: Unverified = Unverified.NEVER
    verify: Verify = Verify.ON

    def may_choose(self, variant: Variant) -> bool:
        """Whether the variant may answer a request that does not name it."""
        return variant.is_verified or (self.unverified is Unverified.ALLOW and not variant.is_off)


@dataclass(frozen=True, slots=True)
class Quota:
    """What a tenant may use; None = no limit."""

    requests_per_s: float | None = None
    concurrent_requests: int | None = None
    memory_guarantee_bytes: int | None = None
    """Memory that its models can count on; None = none."""
    memory_ceiling_bytes: int | None = None
    memory_share: float | None = None
    """A ceiling too, as a share of the budget."""
    stored_bytes: int | None = None
    isolation: Isolation | None = None
    """Which of its builds run in a guard; None = as the box has it. Set by an admin key only."""
    processor_weight: float = 1.0
    """Its share of processor time while others want some, too."""

    def ceiling_bytes(self, budget_bytes: int) -> int | None:
        """The most memory that the models may take: the lower of the two ceilings; None = no limit."""
        ceilings = [] if self.memory_ceiling_bytes is None else [self.memory_ceiling_bytes]
        if self.memory_share is not None:
            ceilings.append(int(self.memory_share * budget_bytes))
        return min(ceilings, default=None)


class WallViewers(StrEnum):
    """Keys that may look at the frames of a tenant's streams on the live wall."""

    NOBODY = "nobody"
    TENANT = "tenant"
    """Keys of the tenant itself."""
    OPERATOR = "operator"
    """Keys of the tenant, and admin keys."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who pays."""

    name: str
    quota: Quota = field(default_factory=Quota)
    wall: WallViewers = WallViewers.NOBODY
    """Set by the tenant itself, never by an admin key for another tenant."""
