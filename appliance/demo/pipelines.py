"""Pipelines of the demo: what each asks in which order, and whose inputs its devices send (`zoo/catalogue.toml`)."""

from collections.abc import Sequence
from dataclasses import dataclass

from appliance.demo.zoo import ZooModel, catalogue
from appliance.wire.pipelines import AskOrder, PipelineOrder


@dataclass(frozen=True, slots=True)
class DemoPipeline:
    """A tenant's pipeline, and the network whose inputs a device sends as frames."""

    tenant: str
    order: PipelineOrder
    inputs_of: str
    rate_fps: float

    @property
    def name(self) -> str:
        return self.order.name

    @property
    def applications(self) -> frozenset[str]:
        """Names of those that it asks."""
        return frozenset(stage.application for stage in self.order.stages if isinstance(stage, AskOrder))


PIPELINES = tuple(
    DemoPipeline(**{**entry, "order": PipelineOrder.model_validate(entry["order"])}) for entry in catalogue.PIPELINES
)


def pipelines_of(models: Sequence[ZooModel]) -> tuple[DemoPipeline, ...]:
    """Those whose networks are all at hand."""
    known = {model.name for model in models}
    return tuple(one for one in PIPELINES if one.applications <= known)


def borrowed(pipeline: DemoPipeline, models: Sequence[ZooModel]) -> list[tuple[str, str]]:
    """(tenant, application) of those that belong to another tenant, who has to share them."""
    wanted = [model for model in models if model.name in pipeline.applications]
    return [(model.tenant, model.name) for model in wanted if model.tenant != pipeline.tenant]
