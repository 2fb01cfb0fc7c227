"""Models with their variants, and applications."""

import datetime
from typing import Any, Literal

from pydantic import AliasChoices, ConfigDict, Field

from appliance.domain.accuracy import ACCURACY
from appliance.domain.catalogue import SLO_MS_MAX, Evidence, Late, Precision, Prefer, TaskKind, Unverified, Verify
from appliance.domain.states import VariantState
from appliance.domain.trial import Verdict
from appliance.wire.fields import Flag, Real, Reason, Text
from appliance.wire.shape import WEIGHT_MAX, Order, Shape


class ImageShape(Order):
    """How a picture becomes a tensor: resize, reorder channels, (pixel - mean) / std with pixels in 0..255."""

    model_config = ConfigDict(from_attributes=True)

    layout: Literal["NCHW", "NHWC"] = "NCHW"
    channels: Literal["RGB", "BGR", "GRAY"] = "RGB"
    mean: tuple[float, ...] = (0.0,)
    """One number, or one per channel, in the order of `channels`."""
    std: tuple[float, ...] = (255.0,)
    resize: Literal["stretch", "letterbox", "crop", "keep-height"] = "stretch"
    """letterbox keeps the aspect and pads below and right; crop takes the centre; keep-height leaves the width free."""
    height: int | None = Field(None, ge=1, le=8192)
    width: int | None = Field(None, ge=1, le=8192)
    """Preferred input size where the graph leaves it open."""
    multiple: int = Field(1, ge=1, le=1024)
    """Sides must be multiples of this, where the graph leaves them open."""
    pad_value: float = 0.0


class StateShape(Order):
    """A tensor carried from one request of a sequence to the next."""

    model_config = ConfigDict(from_attributes=True)

    input: str
    output: str
    shape: tuple[int, ...]
    datatype: str = "FP32"


class TensorShape(Shape):
    """One input or output; -1 marks a free dimension."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False
    """Of an input: a request may leave it out. It has a default then, or the box fills it."""


class AccuracyShape(Shape):
    """Quality in 0..1 and what the figure means."""

    value: float = Field(examples=[0.961], validation_alias=AliasChoices("value", "share"))
    metric: str = Field(examples=["f1@0.5"])
    against: str = Field(examples=["fp32"])
    """`labels`, or `fp32`: agreement with the original, whatever its number format."""
    meaning: str = Field(ACCURACY, examples=["agreement with fp32"])
    """What the figure is called: `accuracy` where labels have measured it, else `agreement with fp32`, or `agreement
    with the original` where that is fp16."""
    samples: int
    data: str
    unused: str = Field(
        "", examples=["3 calibration inputs came, 2 could be read; the first that could not is c.npz: ..."]
    )
    """How many of the samples that came could be used and why not all; empty: all were, or none came."""


class TrialShape(Shape):
    """How a variant does on requests beside the original, while the box is idle."""

    samples: int = Field(examples=[212])
    """Distinct requests on which the two were compared: those of the trial, and the first of the watch."""
    agreement: float = Field(examples=[0.997])
    """Mean, in 0..1, of what the task reads: the same label, the same boxes, the same text; of tensors, 1 less the
    relative error."""
    interval: tuple[float, float] = Field(examples=[(0.993, 1.0)])
    """Of the mean, at 95 %."""
    verdict: Verdict
    """`running`; `promoted`, the variant agrees: requests have verified it; `dismissed`, it does not, and answers only
    requests that name it."""
    watched: int = Field(0, examples=[40])
    """Comparisons since it was promoted, or samples have verified it: should it drift away, it is on trial again."""


class LatencyShape(Shape):
    """Measured run time at one batch size."""

    batch: int
    concurrency: int = Field(1, examples=[2])
    """Runs of it that were under way at once."""
    p50_ms: float
    p99_ms: float


class SeenShape(Shape):
    """What runs took since the import, of one batch size and while so many were under way."""

    batch: int
    concurrency: int = Field(examples=[2])
    """Runs that were under way at once; 0: on the event loop itself, without the way to a worker and back."""
    elements_max: int | None = Field(None, examples=[47])
    """Of inputs with at most so many elements per item, and more than two thirds of that; null: of inputs as large as
    those that the import measured."""
    p50_ms: float
    """Exponentially smoothed."""
    p99_ms: float
    processor: str | None = Field(None, examples=["little"])
    """Where, of several processors of the kind that it serves on; null: on the one that the import measured on."""
    runs: int = Field(0, examples=[3120])
    """That it was learnt from."""
    at: datetime.datetime | None = None
    """Of the last one."""


class RunBoundShape(Shape):
    """Memory of runs with inputs of at most these shapes."""

    shapes: dict[str, list[int]] = Field(examples=[{"image": [4, 3, 224, 224]}])
    """Name of the input → its shape."""
    peak_bytes: int = Field(examples=[38_400_000])
    """Bytes of the activations of such a run."""


class ProfileShape(Shape):
    """What the variant costs on one processor, measured in a process of its own."""

    processor: str
    kind: str = Field("cpu", examples=["openvino"])
    """Of that processor: a variant is measured on each kind that the box has."""
    computes_in: str = Field("", examples=["bf16"])
    """A smaller number format than the network's, where that was measured to be faster and as good; empty: its own."""
    resident_bytes: int
    peak_bytes: int
    load_ms: float
    load_cold_ms: float
    latencies: list[LatencyShape]
    hazards: list[str] | None = None
    """Why it runs in a guard and not inside the service; empty: it is harmless; null: never reviewed."""
    asleep_bytes: int | None = Field(None, examples=[900_000])
    """What stays in memory when it sleeps; null: it cannot sleep, or was never asked to."""
    wake_ms: float | None = Field(None, examples=[3.2])
    """To wake it while its file is in the page cache; null as above."""
    shared_rows_max: int = Field(1, examples=[16])
    """Rows of several requests that may share a run: so many were shown not to influence one another; 1: none may."""
    runs: list[RunBoundShape] = Field([])
    """Memory of runs, from the smallest inputs to the largest; empty: it was not measured."""


class AwaitedShape(Shape):
    """A kind of processor that a variant is to be measured on yet."""

    kind: str = Field(examples=["openvino"])
    state: Literal["waiting", "compiling", "measuring"]
    """waiting: until nothing is imported; compiling: it is prepared for that kind, which takes minutes for some."""


class GivenUpShape(Shape):
    """A kind of processor that a variant was tried on and does not run on."""

    kind: str = Field(examples=["openvino"])
    reason: Reason = Field(examples=["output 'logits' differs by 0.21 of what cpu computes"])
    """Why, for a person: it cannot be compiled or loaded there, or computes something else. It is tried again when the
    kind's libraries change."""


class PartTimeShape(Shape):
    """What a run of a part takes at one batch size."""

    batch: int
    p50_ms: float


class PartProfileShape(Shape):
    """What a part costs on one kind of processor."""

    kind: str = Field(examples=["cpu"])
    is_measured: bool
    """Else `times` are estimated, from those of the largest part on that kind."""
    times: list[PartTimeShape]
    resident_bytes: int
    peak_bytes: int
    asleep_bytes: int | None = None
    """What stays in memory when it sleeps; null: it cannot sleep."""


class PartShape(Shape):
    """Operators of a variant that run together, as a build of their own."""

    operators: int = Field(examples=[120])
    op_types: dict[str, int] = Field(examples=[{"Conv": 53, "Relu": 49}])
    """How often each operator occurs in it."""
    kinds: list[str] = Field(examples=[["cpu", "dla"]])
    """Kinds of processors that it runs on, the box's first one first."""
    serves_on: list[str] = Field([])
    """Those of them that requests run it on now: one for each group of processors; empty: the variant serves whole."""
    inputs: list[str]
    """Tensors that it takes: the network's inputs, or what other parts compute."""
    outputs: list[str]
    size_bytes: int
    """Of its file and its share of the weights, which are on the disk once for all parts."""
    flops: float
    """Floating-point operations of a run of one item."""
    profiles: list[PartProfileShape]


class CutShape(Shape):
    """How a variant is cut for kinds of processors that do not run all of it."""

    kinds: list[str] = Field(examples=[["cpu", "dla"]])
    """That it was cut for."""
    parts: list[PartShape]
    """In an order in which they can run; empty: it stays whole."""
    reason: Reason = ""
    """Why it stays whole."""


class PaddedAxisShape(Shape):
    """An axis of an input that may be made longer, by less than a step."""

    input: str
    axis: int
    step: int = Field(examples=[64])


class PaddingShape(Shape):
    """How inputs of free size may be made larger, so that requests of different sizes share a run."""

    fill: Literal["mean", "edge", "zero"]
    """What stands beyond the end of the input: its mean, its last values once more, zeros."""
    axes: list[PaddedAxisShape]
    is_exact: bool
    """Whether all outputs stay what they are; else what a task reads in them does, and tensors are never padded."""
    evidence: str = Field(examples=["32 samples, accuracy 0.9866 after 0.9857"])
    """What it was shown on."""


class VariantShape(Shape):
    """One concrete build of a model: precision × input size."""

    name: str = Field(examples=["int8-320x416"])
    number: int = Field(0, examples=[3])
    """Its number within the model: what `/v2` calls its version. 0 = from a box that does not number yet."""
    precision: Precision
    state: VariantState
    """making → ready; excluded: servable when named, but of no use by itself; failed."""
    reason: Reason
    """Why it is excluded or failed; of one that is ready, why it was not excluded although another seems as good."""
    size_bytes: int
    content_sha256: str
    height: int | None
    width: int | None
    batch_max: int
    shape_max: dict[str, tuple[int, ...]] | None = Field(None, examples=[{"image": [8, 3, 640, 640]}])
    """The largest shape of each input that requests may have; null until it is measured."""
    inputs: list[TensorShape]
    outputs: list[TensorShape]
    accuracy: AccuracyShape | None
    evidence: Evidence = Field(Evidence.NOISE, examples=["samples"])
    """Inputs that show what its answers are worth: `original`, none are needed; `samples`, labelled or calibration
    samples; `traffic`, requests; `noise`, synthetic inputs, which prove nothing; `calibration`, the samples that it was
    calibrated with, for there were too few to hold some out; `disagreed`, requests, on which it does not agree with the
    original. With `noise` and `calibration` the variant is unverified: it answers when it is named, and by choice
    of the box only where the application allows it. With `disagreed` it answers only when it is named; `accuracy` and
    `loss` are then what the trial found."""
    trial: TrialShape | None = None
    """How it does on requests; null: it has not been tried on any."""
    profile: ProfileShape | None
    """On the box's first kind of processor; latencies of one run at a time."""
    profiles: list[ProfileShape] = Field([])
    """On every kind that computes the same, the first one's first; latencies also of several runs at once."""
    seen: list[SeenShape] = Field([])
    """What runs took since, where it serves now; of a build that others have too, theirs included."""
    serves_on: str | None = Field(None, examples=["cpu"])
    """The kind of processor that requests run on now, of one in parts all of theirs (`cpu+openvino`); null: none, it
    is not measured yet or does not serve.
    """
    kind_reason: str = Field(
        "",
        examples=["a request costs 18.9 ms on openvino and 24.1 on cpu, loads and memory counted in"],
    )
    """Why it serves on that kind; empty where it was measured on no other."""
    given_up: list[GivenUpShape] = Field([])
    """Kinds of processors that it was tried on and does not run on, each with the reason."""
    awaited: list[AwaitedShape] = Field([])
    """Kinds of processors that it is to be measured on yet: it may serve there then."""
    avoids: list[str] = Field([], examples=[["openvino"]])
    """Kinds of processors that it serves on no more until the next start or release: its process has crashed there
    three times."""
    cut: CutShape | None = None
    """In parts, where some kind of processor does not run all of it; null: every kind does, or it was not looked at."""
    padding: PaddingShape | None = None
    """How its inputs may be made larger; null: they may not, or are all of one size."""
    loss: float | None = Field(None, examples=[0.001])
    """Accuracy, or without labels agreement, that it may lose to the model's best variant, as a share, at 95 %; null:
    it is not known."""
    residency: str = "absent"
    """Where it is in memory now: absent, loading, resident, draining, unloading, failed."""

    @property
    def serving_profile(self) -> ProfileShape | None:
        """On the kind of processor that it serves on."""
        return next((one for one in self.profiles if one.kind == self.serves_on), self.profile)


class TaskShape(Shape):
    """What the model does and how bytes become tensors."""

    kind: TaskKind
    labels: tuple[str, ...]
    image: ImageShape | None
    decoder: str
    params: dict[str, Any]
    state: tuple[StateShape, ...]
    constants: dict[str, float]
    shape_max: dict[str, tuple[int | None, ...]] = Field({})
    """The largest shape of an input that was asked for; null where the box chose."""


class ModelShape(Shape):
    """A network with its zoo of variants."""

    name: str = Field(examples=["centerface"])
    tenant: str
    shared: bool
    task: TaskShape
    state: str = Field(examples=["ready"])
    """importing: no variant yet; ready: at least one is servable; quarantined: none is until one is released; failed:
    none could be made.
    """
    variants: list[VariantShape]


class ModelSummary(Shape):
    """A model in a list."""

    name: str = Field(examples=["centerface"])
    tenant: str
    shared: bool
    task: TaskKind
    state: str = Field(examples=["ready"])
    variants: list[str] = Field(examples=[["fp32", "int8"]])
    """Names of its variants, in the order of making; empty with `summary=true`."""
    variants_count: int = Field(0, examples=[2])
    size_bytes: int
    """Of all variants."""


class ApplicationOrder(Order):
    """A registered use of a model."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "door", "model": "centerface", "latency_slo_ms": 100, "accuracy_min": 0.9}]
        }
    )

    name: Text = Field(examples=["door"])
    model: Text = Field(examples=["centerface"])
    """Name of one of the tenant's models, or of a shared one."""
    latency_slo_ms: Real | None = Field(None, gt=0, le=SLO_MS_MAX, examples=[100])
    """Promised latency; also the deadline of a request that states none."""
    accuracy_min: Real = Field(0.0, ge=0, le=1, examples=[0.9])
    """Variants below this are not chosen by the box."""
    weight: Real = Field(1.0, gt=0, le=WEIGHT_MAX, examples=[1.0])
    """Its part of the tenant's share of the box, relative to the tenant's other applications."""
    shared: Flag = False
    """Callable by every tenant."""
    late: Late = Late.DROP
    """What becomes of a request at its deadline: `drop` answers 504 there and then; `run` answers whenever it is done,
    and counts it as late."""
    prefer: Prefer = Prefer.BALANCED
    """Which variant answers a request that names none: `accuracy`, the most accurate; `balanced`, the fastest of those
    that lose next to nothing to it (`selection.loss_max`); `speed`, the fastest that reaches `accuracy_min`. Before all
    of these go variants that keep the SLO."""
    unverified: Unverified = Unverified.NEVER
    """Whether the box may choose a variant that only noise was tried on: `never`, such a variant answers requests that
    name it; `allow`, it is chosen as any other."""
    verify: Verify = Verify.ON
    """Whether unverified variants are tried on requests of this application: `on`, while the box is idle a request is
    run on such a variant, too, and its answer is compared with the original's; a variant that agrees is verified. The
    inputs are held in memory for a few seconds for this. `off`, none of its requests is used."""


class ApplicationChange(Order):
    """What to change; fields left out stay as they are."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"latency_slo_ms": 50, "weight": 2}]})

    model: Text | None = None
    latency_slo_ms: Real | None = Field(None, gt=0, le=SLO_MS_MAX)
    """null takes the promise away."""
    accuracy_min: Real | None = Field(None, ge=0, le=1)
    weight: Real | None = Field(None, gt=0, le=WEIGHT_MAX)
    shared: Flag | None = None
    late: Late | None = None
    prefer: Prefer | None = None
    unverified: Unverified | None = None
    verify: Verify | None = None


class RunsShape(Shape):
    """How long runs took of late."""

    variants: dict[str, list[float]] = Field(examples=[{"int8": [4.1, 4.3, 4.2]}])
    """Variant → milliseconds of its latest warm runs of one item, oldest first; at most 256."""


class SloWarning(Shape):
    """None of the variants keeps the application's SLO; this one is the fastest."""

    type: Literal["slo-not-kept"] = "slo-not-kept"
    variant: str = Field(examples=["int8"])
    p99_ms: float = Field(examples=[5.0])
    """Of a run of one item, as measured at import. A variant keeps an SLO when twice that fits: one run to wait for and
    its own."""
    detail: str = Field(
        examples=[
            "no variant keeps 3 ms: the fastest, int8, takes 5 ms (P99), so requests without a timeout of their own "
            "will get 504; 10 ms or a smaller model would do"
        ]
    )
    """For a person."""


class NeverFitsWarning(Shape):
    """No variant that may answer a request without a name can ever fit into the memory budget: requests get 507."""

    type: Literal["can-never-fit"] = "can-never-fit"
    variants: list[str] = Field(examples=[["fp32"]])
    need_bytes: int = Field(examples=[92_400_000])
    """Of the smallest of them."""
    budget_bytes: int = Field(examples=[70_000_000])
    detail: str = Field(
        examples=[
            "no room in memory, ever: at the least fp32 needs 92.4 MB, models may take 70.0 MB, or the part of it that "
            "the model's owner may take; int8 would fit and is unverified: name it, or set unverified of the "
            "application to allow; else raise the memory budget, or upload a smaller variant"
        ]
    )
    """For a person."""


class UnverifiedWarning(Shape):
    """Variants that the box does not choose, because they are unverified or disagree with the original on requests."""

    type: Literal["unverified-variants"] = "unverified-variants"
    variants: list[str] = Field(examples=[["int8", "fp16"]])
    detail: str = Field(
        examples=[
            "int8, fp16: compared with the original on noise only. Unverified variants answer only requests that name "
            "them. While the box is idle, requests run on them and on the original for comparison. Upload the model "
            "with 8 calibration samples or more, or evaluation samples, or set unverified to allow"
        ]
    )
    """For a person."""


class ServedShape(Shape):
    """How an application's requests were served since the box started, or its figures of them were forgotten. Shares
    and means are null without a request, accuracies without an answer.
    """

    requests: int = 0
    """Answered or not."""
    warm: int = 0
    """Answers for which a variant was in memory."""
    cold: int = 0
    """Answers for which a variant was loaded."""
    warm_share: float | None = Field(None, examples=[0.95])
    cold_share: float | None = Field(None, examples=[0.04])
    accuracy: float | None = Field(None, examples=[0.91])
    """Mean over the answers, each with the figure of the variant that gave it; after a cold start that of the variant
    then loaded. `accuracy_meaning` of the application says what it is called."""
    accuracy_normalised: float | None = Field(None, examples=[0.8])
    """The same between the application's least (0) and most accurate variant (1)."""
    robustness: float | None = Field(None, examples=[0.86])
    """`warm_share` times `accuracy`: the application's term of Edge-MultiAI's equation 4."""


class ApplicationShape(Shape):
    """A registered use of a model."""

    name: str = Field(examples=["door"])
    tenant: str
    model: str = Field(examples=["centerface"])
    task: TaskKind | None
    latency_slo_ms: float | None
    accuracy_min: float
    accuracy_meaning: str = Field(ACCURACY, examples=["agreement with fp32"])
    """What the accuracies of its model are called, here and in `served` and `choice`: as `meaning` of its variants."""
    weight: float
    shared: bool
    late: Late = Late.DROP
    prefer: Prefer = Prefer.BALANCED
    unverified: Unverified = Unverified.NEVER
    verify: Verify = Verify.ON
    available: bool
    """Whether a request would be served now; a cold load counts as yes."""
    variants: list[str]
    """Names of the servable variants, the one the box would choose first; that one alone with `summary=true`."""
    choice: str = Field("", examples=["int8 takes 25 ms, fp32 58; 2 of 2 have an agreement with fp32 of at least 0"])
    """Why they are in that order; figures of accuracy in it are points of per cent. Empty with `summary=true`."""
    warnings: list[SloWarning | UnverifiedWarning | NeverFitsWarning] = Field([])
    """What the tenant should know of its promises; empty where there is nothing, and with `summary=true`."""
    slo_requests: int = 0
    """Requests since the SLO was set or the box started; not those that the caller got wrong or had no quota for."""
    slo_kept: float | None = Field(None, examples=[0.993])
    """Share of these that were answered within the SLO; null without an SLO or a request."""
    served: ServedShape = ServedShape()
