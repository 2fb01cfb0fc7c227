"""The planners of sessions in virtual time: asked in place, for decisions take none of it."""

from collections import deque

from appliance.lab.policies import Stopwatch
from appliance.lab.registry import FAMILIES
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan, AdaptationPolicy
from appliance.policies.offload.base import OffloadInput, OffloadPlan, OffloadPolicy


class InPlace:
    """Port `Deciding` of a simulation."""

    def __init__(self, adaptation: str, offload: str, stopwatch: Stopwatch) -> None:
        """Names of policies; decisions are timed by the wall clock."""
        self.adaptation, self.offload = adaptation, offload
        self.count = 0
        self.recent_ms: deque[float] = deque(maxlen=0)
        """None: the stopwatch has them."""
        self._adapting: AdaptationPolicy = stopwatch.timed("adaptation", FAMILIES["adaptation"][adaptation]())
        self._offloading: OffloadPolicy = stopwatch.timed("offload", FAMILIES["offload"][offload]())

    async def adapt(self, problem: AdaptationInput) -> AdaptationPlan:
        """Which network on which worker, and which client to which."""
        self.count += 1
        return self._adapting.plan(problem)

    async def offloads(self, problem: OffloadInput) -> OffloadPlan:
        """Which frames, in which batches."""
        self.count += 1
        return self._offloading.plan(problem)
