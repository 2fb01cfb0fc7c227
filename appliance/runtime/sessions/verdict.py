"""Whether a session can be served: the answer of a planner, and its words."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from appliance.domain.session import Cause, Offer
from appliance.policies.adaptation.base import AdaptationPlan
from appliance.policies.offload.base import OffloadInput, OffloadPlan
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.zoo import Zoo


@dataclass(frozen=True, slots=True)
class OffloadDecision:
    """A plan of frames, and the problem that it answers."""

    problem: OffloadInput
    plan: OffloadPlan
    leaving: Mapping[str, tuple[Cause, str]] = field(default_factory=dict)
    """Sessions that are removed and that the problem leaves out, with the reason; `plan.removed` has its own."""

    @property
    def removed(self) -> set[str]:
        """All sessions that are removed."""
        return {*self.plan.removed, *self.leaving}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a session can be served, and what it would be."""

    fits: bool
    cause: Cause | None = None
    reason: str = ""
    lane: int = 0
    share: float = 1.0
    """Of all workers' time, what its pool could get when it was asked for."""
    displaced: tuple[LiveSession, ...] = ()
    """Sessions beyond their tenants' shares that have to go for it."""
    load: float = 0.0
    """Of a promise of accuracy: share of all workers that it takes by that plan."""
    planned: tuple[OffloadDecision, Zoo] | None = None
    """Of a promise of accuracy: the plan that serves it beside all others, and what it is made of."""
    mapped: AdaptationPlan | None = None
    """The same of a promise of latency."""
    offers: tuple[Offer, ...] = ()
    """Of a pipeline that has refused it: what could be promised. The planners of applications are asked for theirs."""

    @property
    def told(self) -> str:
        """Why not, for a person."""
        return f"{(self.cause or Cause.PROCESSOR).value}: {self.reason}"


def nothing_to_run(zoo: Zoo) -> Verdict:
    """The answer to who asks for a promise where there is nothing to run."""
    cause, reason = zoo.lack
    return Verdict(False, cause, reason)
