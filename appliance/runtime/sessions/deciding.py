"""Where the planners of sessions compute: on the event loop while that takes next to nothing, else in a process of
their own. In a thread a decision of 0.2 s makes the event loop 9 ms late.
"""

import asyncio
import multiprocessing
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Protocol, TypeVar

from appliance.child import die_with_parent
from appliance.clock import NS_PER_MS, Clock
from appliance.log import get as get_log
from appliance.policies.adaptation import ADAPTATION_POLICIES
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan
from appliance.policies.offload import OFFLOAD_POLICIES
from appliance.policies.offload.base import OffloadInput, OffloadPlan

IN_PLACE_MS_MAX = 2.0
RECENT = 512
"""Decisions whose times are kept."""

ProblemT = TypeVar("ProblemT")
PlanT = TypeVar("PlanT")

log = get_log("sessions")


class Deciding(Protocol):
    """Asks the planners."""

    adaptation: str
    """Registry name in `policies.adaptation`."""
    offload: str
    """Registry name in `policies.offload`."""
    count: int
    """Decisions since the start."""
    recent_ms: deque[float]
    """What the latest took, until they were there."""

    async def adapt(self, problem: AdaptationInput) -> AdaptationPlan: ...

    async def offloads(self, problem: OffloadInput) -> OffloadPlan: ...


class Decisions:
    """Port `Deciding` of a box. Event-loop thread only."""

    def __init__(
        self,
        clock: Clock,
        adaptation: str,
        offload: str,
        *,
        in_place_ms_max: float = IN_PLACE_MS_MAX,
        executor_of: Callable[[], Executor] | None = None,
    ) -> None:
        """`executor_of` makes what computes long decisions, when the first one comes; None: a process."""
        self.adaptation, self.offload = adaptation, offload
        self.count = 0
        self.elsewhere = 0
        """Of them, in the other process."""
        self.recent_ms: deque[float] = deque(maxlen=RECENT)
        self._clock = clock
        self._in_place_ms_max = in_place_ms_max
        self._executor_of = executor_of or _process
        self._executor: Executor | None = None
        self._expected_ms: dict[tuple[str, int], float] = {}
        """Family and clients, in powers of two → what such a decision took last."""

    async def adapt(self, problem: AdaptationInput) -> AdaptationPlan:
        """Which network on which worker, and which client to which."""
        return await self._decide("adaptation", len(problem.clients), adaptation_plan, self.adaptation, problem)

    async def offloads(self, problem: OffloadInput) -> OffloadPlan:
        """Which frames, in which batches."""
        clients = len(problem.clients) + len(problem.waiting)
        return await self._decide("offload", clients, offload_plan, self.offload, problem)

    def close(self) -> None:
        """Let go of the process."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    async def _decide(
        self, family: str, clients: int, plan: Callable[[str, ProblemT], PlanT], name: str, problem: ProblemT
    ) -> PlanT:
        size = (family, clients.bit_length())
        start_ns = self._clock.now_ns()
        # Of a size that never came, the next smaller one says whether it is worth a try in place.
        expected_ms = self._expected_ms.get(size, 4 * self._expected_ms.get((family, size[1] - 1), 0.0))
        if expected_ms <= self._in_place_ms_max:
            made = plan(name, problem)
        else:
            made = await self._elsewhere(plan, name, problem)
        took_ms = (self._clock.now_ns() - start_ns) / NS_PER_MS
        self._expected_ms[size] = took_ms
        self.count += 1
        self.recent_ms.append(took_ms)
        return made

    async def _elsewhere(self, plan: Callable[[str, ProblemT], PlanT], name: str, problem: ProblemT) -> PlanT:
        if self._executor is None:
            self._executor = self._executor_of()
        self.elsewhere += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, plan, name, problem)
        except BrokenProcessPool:
            log.warning("the planners' process ended; it is begun anew")
            self._executor = None
            return plan(name, problem)


def adaptation_plan(name: str, problem: AdaptationInput) -> AdaptationPlan:
    """What the policy of this name plans."""
    return ADAPTATION_POLICIES[name]().plan(problem)


def offload_plan(name: str, problem: OffloadInput) -> OffloadPlan:
    """What the policy of this name plans."""
    return OFFLOAD_POLICIES[name]().plan(problem)


def _process() -> Executor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), die_with_parent)
