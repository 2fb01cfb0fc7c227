"""The answer of `predict`: the task's own fields, and beside them who answered and where the time went."""

from typing import Any

from pydantic import ConfigDict, Field

from appliance.domain.catalogue import Evidence
from appliance.wire.shape import Shape


class TimingsShape(Shape):
    """Milliseconds, in the order of the way."""

    decode: float
    """Media to tensors, waiting for a thread included."""
    queue: float
    load: float
    """Bringing a variant into memory; 0 when it was warm, or asleep."""
    wake: float = 0.0
    """Bringing the weights of a variant that slept back; 0 when it was warm."""
    compute: float
    encode: float
    """Outputs to the answer."""
    total: float


class RanPartShape(Shape):
    """A part of the network as it ran for this request."""

    part: int
    """Its number, from 0: its place in `cut.parts` of the variant."""
    group: str = Field(examples=["cpu"])
    """Processors that share cores, or a device."""
    kind: str = Field(examples=["openvino"])
    """Of the one of them that computed it."""
    ms: float


class PredictShape(Shape):
    """What the model says.

    Fields of the task (labels, objects, faces, texts, embedding, speech, outputs ...) stand beside these.
    """

    model_config = ConfigDict(extra="allow")

    application: str = Field(examples=["door"])
    model: str = Field(examples=["centerface"])
    variant: str = Field(examples=["int8-320x416"])
    accuracy: float | None = Field(examples=[0.961])
    """Measured quality of the variant that answered, 0..1."""
    accuracy_metric: str | None = Field(examples=["f1@0.5 against fp32"])
    accuracy_meaning: str | None = Field(None, examples=["agreement with fp32"])
    """What the figure is called, as in the model's list of variants; null: not measured."""
    evidence: Evidence | None = Field(None, examples=["samples"])
    """Inputs that show what the variant's answers are worth, as in the model's list of variants."""
    warnings: list[str] = Field([])
    """Why the answer may be wrong."""
    warm: bool
    """Whether a variant was in memory when the request came."""
    timings_ms: TimingsShape
    parts: list[RanPartShape] = Field([])
    """What ran where, in its order, of a network that ran in parts; absent: it ran whole."""
    processor: str | None = Field(None, examples=["emulated"])
    """Its kind where it is none that computes at its own pace; absent: it does."""
    request_id: str

    @property
    def task_fields(self) -> dict[str, Any]:
        """What the task itself says."""
        return dict(self.model_extra or {})
