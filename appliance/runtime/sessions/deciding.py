"""Where the planners of sessions compute: on the event loop while that takes next to nothing, else in a process of
their own. In a thread a decision of 0.2 s makes the event loop 9 ms late.
"""

import asyncio
import multiprocessing
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from statistics import median
from typing import NamedTuple, Protocol, TypeVar

from appliance.child import die_with_parent
from appliance.clock import NS_PER_MS, Clock, SystemClock
from appliance.log import get as get_log
from appliance.policies.adaptation import ADAPTATION_POLICIES
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan
from appliance.policies.offload import OFFLOAD_POLICIES
from appliance.policies.offload.base import OffloadInput, OffloadPlan

IN_PLACE_MS_MAX = 2.0
_REMEMBERED = 3
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
        self._taken_ms: dict[_Size, deque[float]] = {}
        """What the latest decisions of a size have computed for."""

    async def adapt(self, problem: AdaptationInput) -> AdaptationPlan:
        """Which network on which worker, and which client to which."""
        return await self._decide("adaptation", len(problem.clients), adaptation_plan, self.adaptation, problem)

    async def offloads(self, problem: OffloadInput) -> OffloadPlan:
        """Which frames, in which batches."""
        clients, is_asked = len(problem.clients) + len(problem.waiting), bool(problem.waiting)
        return await self._decide("offload", clients, offload_plan, self.offload, problem, is_asked=is_asked)

    def close(self) -> None:
        """Let go of the process."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    async def _decide(
        self,
        family: str,
        clients: int,
        plan: Callable[[str, ProblemT], PlanT],
        name: str,
        problem: ProblemT,
        *,
        is_asked: bool = False,
    ) -> PlanT:
        """`is_asked`: somebody wants to come in, which takes longer than to go on."""
        size = _Size(family, clients.bit_length(), is_asked)
        start_ns = self._clock.now_ns()
        if self._expected_ms(size) <= self._in_place_ms_max:
            made, took_ms = _timed(self._clock, plan, name, problem)
        else:
            made, took_ms = await self._elsewhere(plan, name, problem)
        self._taken_ms.setdefault(size, deque(maxlen=_REMEMBERED)).append(took_ms)
        self.count += 1
        self.recent_ms.append((self._clock.now_ns() - start_ns) / NS_PER_MS)
        return made

    def _expected_ms(self, size: "_Size") -> float:
        """The median of the latest, which one slow one does not move. Of a size that never came four times that of half
        the clients."""
        known = self._taken_ms.get(size)
        if known is not None:
            return median(known)
        smaller = self._taken_ms.get(size._replace(doublings=size.doublings - 1))
        return 0.0 if smaller is None else 4.0 * median(smaller)

    async def _elsewhere(
        self, plan: Callable[[str, ProblemT], PlanT], name: str, problem: ProblemT
    ) -> tuple[PlanT, float]:
        if self._executor is None:
            self._executor = self._executor_of()
        self.elsewhere += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._executor, _timed, SystemClock(), plan, name, problem)
        except BrokenProcessPool:
            log.warning("the planners' process ended; it is begun anew")
            self._executor = None
            return _timed(self._clock, plan, name, problem)


class _Size(NamedTuple):
    """What decisions are alike in."""

    family: str
    doublings: int
    """Of the number of clients, from one."""
    is_asked: bool


def _timed(clock: Clock, plan: Callable[[str, ProblemT], PlanT], name: str, problem: ProblemT) -> tuple[PlanT, float]:
    """The plan, and the milliseconds that it was computed for."""
    start_ns = clock.now_ns()
    made = plan(name, problem)
    return made, (clock.now_ns() - start_ns) / NS_PER_MS


def adaptation_plan(name: str, problem: AdaptationInput) -> AdaptationPlan:
    """What the policy of this name plans."""
    return ADAPTATION_POLICIES[name]().plan(problem)


def offload_plan(name: str, problem: OffloadInput) -> OffloadPlan:
    """What the policy of this name plans."""
    return OFFLOAD_POLICIES[name]().plan(problem)


def _process() -> Executor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), die_with_parent)
