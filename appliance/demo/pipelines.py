"""Pipelines of the demo: what each asks in which order, and whose inputs its devices send."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from appliance.wire.pipelines import AskOrder, PipelineOrder

if TYPE_CHECKING:
    from appliance.demo.zoo import ZooModel


@dataclass(frozen=True, slots=True)
class DemoPipeline:
    """One pipeline of a tenant, and the device that sends it frames."""

    tenant: str
    order: PipelineOrder
    inputs_of: str
    """The model whose inputs are its frames."""
    rate_fps: float
    """Frames a second that suit a demo on two cores."""

    @property
    def name(self) -> str:
        return self.order.name

    @property
    def applications(self) -> frozenset[str]:
        """Names of those that it asks."""
        return frozenset(stage.application for stage in self.order.stages if isinstance(stage, AskOrder))


SIGNS = DemoPipeline(
    "glasses",
    PipelineOrder.model_validate(
        {
            "name": "signs",
            "latency_slo_ms": 600,
            "stages": [
                {"name": "find", "application": "find-text"},
                {
                    "name": "lines",
                    "do": "crop",
                    "after": ["find"],
                    "of": "regions",
                    "where": {"score_min": 0.6},
                    "at_most": 16,
                },
                {"name": "read", "application": "read-text", "after": ["lines"]},
            ],
        }
    ),
    "find-text",
    0.5,
)
PEOPLE = DemoPipeline(
    "camera",
    PipelineOrder.model_validate(
        {
            "name": "people",
            "latency_slo_ms": 400,
            "stages": [
                {"name": "faces", "application": "faces"},
                {"name": "crop", "do": "crop", "after": ["faces"], "of": "objects", "at_most": 8},
                {"name": "who", "application": "who", "after": ["crop"]},
            ],
        }
    ),
    "faces",
    1,
)
STREET = DemoPipeline(
    "camera",
    PipelineOrder.model_validate(
        {
            "name": "street",
            "latency_slo_ms": 400,
            "stages": [
                {"name": "objects", "application": "objects"},
                {
                    "name": "persons",
                    "do": "crop",
                    "after": ["objects"],
                    "of": "objects",
                    "where": {"label": "person"},
                    "at_most": 16,
                },
                {
                    "name": "things",
                    "do": "crop",
                    "after": ["objects"],
                    "of": "objects",
                    "where": {"label_not": "person"},
                    "at_most": 4,
                },
                {"name": "what", "application": "what", "after": ["things"]},
            ],
        }
    ),
    "objects",
    1,
)
PIPELINES = (SIGNS, PEOPLE, STREET)


def pipelines_of(models: "Sequence[ZooModel]") -> tuple[DemoPipeline, ...]:
    """Those whose networks are all at hand."""
    known = {model.name for model in models}
    return tuple(one for one in PIPELINES if one.applications <= known)


def borrowed(pipeline: DemoPipeline, models: "Sequence[ZooModel]") -> list[tuple[str, str]]:
    """(tenant, application) of those that belong to another tenant, who has to share them."""
    wanted = [model for model in models if model.name in pipeline.applications]
    return [(model.tenant, model.name) for model in wanted if model.tenant != pipeline.tenant]
