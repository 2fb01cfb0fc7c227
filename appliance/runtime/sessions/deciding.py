"""Where the planners of sessions compute: on the event loop about a few sessions, while that takes next to nothing,
else in a process of their own. In a thread, where there is no process, a decision of 0.2 s makes the event loop 9 ms
late.

How long a decision takes is not known before: one that goes on with the plan before takes half a millisecond, one of
the same size that leaves somebody out takes hundreds. The way to the process and back takes a tenth of a millisecond of
the event loop for thirty sessions.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import thread_time_ns
from typing import NamedTuple, Protocol, TypeVar

from appliance.clock import NS_PER_MS, Clock
from appliance.log import get as get_log
from appliance.policies.adaptation import ADAPTATION_POLICIES
from appliance.policies.adaptation.base import AdaptationInput, AdaptationPlan
from appliance.policies.offload import OFFLOAD_POLICIES
from appliance.policies.offload.base import OffloadInput, OffloadPlan
from appliance.runtime.sessions.planner_process import PlannerEnded, PlannerProcess

IN_PLACE_MS_MAX = 2.0
IN_PLACE_CLIENTS_MAX = 3
"""Sessions that may be decided about on the event loop."""
_REMEMBERED = 16
"""Decisions of a size, of which none may have taken longer."""
_VERY = 50.0
"""Times the limit that a decision may hold the event loop for where there is no process for it."""
RECENT = 512
"""Decisions whose times are kept."""
LIMIT_S = 5.0
"""A process that has not decided by then is ended: it stands, or what it would answer is about frames of long ago."""
BEGIN_S = 0.5
"""So long a decision waits for a process that begins; then it is made in a thread: after a restart on a busy machine,
where a process takes seconds, devices wait for their plans; and where there is no memory for one, none begins."""

ProblemT = TypeVar("ProblemT")
PlanT = TypeVar("PlanT")

log = get_log("sessions")


class DecisionSlow(Exception):
    """No decision was made in time."""


class Deciding(Protocol):
    """Asks the planners. Raises: DecisionSlow."""

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
        in_place_clients_max: int = IN_PLACE_CLIENTS_MAX,
        spent_ns: Callable[[], int] = thread_time_ns,
        limit_s: float = LIMIT_S,
        begin_s: float = BEGIN_S,
        process_for: Callable[[str], PlannerProcess] = lambda family: PlannerProcess(),
    ) -> None:
        """`spent_ns`: by what it is judged how long a decision holds the event loop. `limit_s`: of one in a process of
        its own; `begin_s`: for which it waits that this begins; `process_for`: makes that of a family.
        """
        self.adaptation, self.offload = adaptation, offload
        self.count = 0
        self.elsewhere = 0
        """Of them, in the other process."""
        self.recent_ms: deque[float] = deque(maxlen=RECENT)
        self._clock = clock
        self._in_place_ms_max = in_place_ms_max
        self._in_place_clients_max = in_place_clients_max
        self._spent_ns = spent_ns
        self._limit_s = limit_s
        self._begin_s = begin_s
        self._process_for = process_for
        self._processes: dict[str, PlannerProcess] = {}
        """By family: one does not wait for the other."""
        self._taken_ms: dict[_Size, deque[float]] = {}
        """What the latest decisions of a size have computed for."""

    async def adapt(self, problem: AdaptationInput) -> AdaptationPlan:
        """Which network on which worker, and which client to which."""
        return await self._decide("adaptation", len(problem.clients), adaptation_plan, self.adaptation, problem)

    async def offloads(self, problem: OffloadInput) -> OffloadPlan:
        """Which frames, in which batches."""
        clients, is_asked = len(problem.clients) + len(problem.waiting), bool(problem.waiting)
        return await self._decide("offload", clients, offload_plan, self.offload, problem, is_asked=is_asked)

    async def close(self) -> None:
        """End the processes."""
        for process in self._processes.values():
            await process.close()

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
        process = self._processes.get(family)
        if process is None:
            process = self._processes[family] = self._process_for(family)
        if clients >= self._in_place_clients_max:  # the next one that joins does not wait for its begin
            process.warm_up(has_begun)
        if not self._is_long(size, clients):
            made, took_ms = timed(self._spent_ns, plan, name, problem)
        elif await process.has_begun(self._begin_s, has_begun):
            made, took_ms = await self._elsewhere(size, plan, name, problem)
        else:
            made, took_ms = await self._in_thread(plan, name, problem)
        self._taken_ms.setdefault(size, deque(maxlen=_REMEMBERED)).append(took_ms)
        self.count += 1
        self.recent_ms.append((self._clock.now_ns() - start_ns) / NS_PER_MS)
        return made

    def _is_long(self, size: "_Size", clients: int) -> bool:
        """Whether such a decision is not for the event loop."""
        return clients > self._in_place_clients_max or max(self._taken_ms.get(size, (0.0,))) > self._in_place_ms_max

    async def _elsewhere(
        self, size: "_Size", plan: Callable[[str, ProblemT], PlanT], name: str, problem: ProblemT
    ) -> tuple[PlanT, float]:
        """In the process; in a thread where it has ended; here where it stands, unless that would hold the event loop
        for very long.

        Raises: DecisionSlow.
        """
        process = self._processes[size.family]
        self.elsewhere += 1
        try:
            async with asyncio.timeout(self._limit_s) as limit:
                made: tuple[PlanT, float] = await process.call(timed, thread_time_ns, plan, name, problem)
        except PlannerEnded:
            log.warning("a planner's process ended before it had decided", family=size.family)
            made = await self._in_thread(plan, name, problem)
        except TimeoutError:
            if not limit.expired():
                raise
            log.warning("a planner's process did not answer; a new one begins", family=size.family)
            longest_ms = _VERY * self._in_place_ms_max
            if max(self._taken_ms.get(size, (longest_ms,))) >= longest_ms:
                raise DecisionSlow from None
            made = timed(self._spent_ns, plan, name, problem)
        return made

    async def _in_thread(
        self, plan: Callable[[str, ProblemT], PlanT], name: str, problem: ProblemT
    ) -> tuple[PlanT, float]:
        return await asyncio.to_thread(timed, self._spent_ns, plan, name, problem)


class _Size(NamedTuple):
    """What decisions are alike in."""

    family: str
    doublings: int
    """Of the number of clients, from one."""
    is_asked: bool


def has_begun() -> None:
    """Asked of a process, imports there what decisions need: this module does."""


def timed(
    spent_ns: Callable[[], int], plan: Callable[[str, ProblemT], PlanT], name: str, problem: ProblemT
) -> tuple[PlanT, float]:
    """The plan, and the milliseconds of processor time that it took: what other work of the machine takes from it is
    taken from the other process, too, and is no reason to go there."""
    start_ns = spent_ns()
    made = plan(name, problem)
    return made, (spent_ns() - start_ns) / NS_PER_MS


def adaptation_plan(name: str, problem: AdaptationInput) -> AdaptationPlan:
    """What the policy of this name plans."""
    return ADAPTATION_POLICIES[name]().plan(problem)


def offload_plan(name: str, problem: OffloadInput) -> OffloadPlan:
    """What the policy of this name plans."""
    return OFFLOAD_POLICIES[name]().plan(problem)
