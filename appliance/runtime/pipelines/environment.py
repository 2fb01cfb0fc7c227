"""What planning finds where it runs: the pipelines as they are served, and the box around them."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from appliance.clock import Clock
from appliance.domain.events import EventSink
from appliance.domain.pipeline import Pipeline, PipelinePlan
from appliance.domain.pipeline_graph import Graph
from appliance.policies.allocation.base import AllocationPolicy
from appliance.runtime.catalogue import Catalogue
from appliance.runtime.pipelines.accounts import Tariff
from appliance.runtime.pipelines.clients import Clients
from appliance.runtime.pipelines.enacting import Enacting
from appliance.runtime.pipelines.problem import Machine
from appliance.runtime.pipelines.windows import WINDOW_NS, Totals
from appliance.runtime.ports import Background, DecisionSink


class PlannedPipeline(Protocol):
    """A pipeline as it is served: what planning needs of it."""

    pipeline: Pipeline
    graph: Graph
    clients: Clients
    plan: PipelinePlan | None

    def totals(self) -> Totals:
        """What came of it since the start."""
        ...

    def look(self) -> None:
        """Note what it has cost until now."""
        ...

    def new_plan(self, plan: PipelinePlan | None) -> None:
        """It goes by this one from now on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineEnvironment:
    """What planning needs of the box."""

    clock: Clock
    catalogue: Catalogue
    policy: AllocationPolicy
    policy_name: str
    background: Background
    decisions: DecisionSink
    events: EventSink
    tariff: Tariff
    machine: Callable[[], Machine]
    """The processors that are in service now, but those that are spared ..."""
    need_spared: Callable[[], bool]
    """... which are planned with from now on, where somebody has less than they asked for; False: none were spared."""
    memory_bytes: Callable[[str, Collection[str]], int]
    """What builds that a tenant's pipelines use may take together ..."""
    room_bytes: Callable[[Collection[str]], int]
    """... and such as those of all use."""
    held_beside: Callable[[], str]
    """What processes take of the memory, to follow what finds no room."""
    is_resident: Callable[[str], bool]
    """Whether a build is in memory."""
    busy_s: Callable[[], Mapping[str, Mapping[int, float]]]
    """Tenant → group of processors → seconds that its single calls have taken there, since the start."""
    enacting: Enacting
    window_ns: int = WINDOW_NS
    """Over how long frames are looked at."""
