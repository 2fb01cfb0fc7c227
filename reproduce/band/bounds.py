"""Bounds on any schedule on the phone that knows everything beforehand, by two linear programs.

Requests at once (`bound_ms`): each is shared out at will over all sequences of subgraphs and their processors. The
requests of a network flow from nothing done to all done, a run is an arc that takes time on its processor (the work,
the call, the move of what was done elsewhere), and no processor has more than the makespan. That runs are whole, and
come one after another, is left out, so nothing can be quicker.

Periodic applications (`satisfaction_bound`): whatever a schedule does in a long time, the share of an application's
requests that begin on a processor so long after they came is one column. Each processor has one period's time for what
begins in a period, at each phase of it. A request that does not end in time does not count. Two constraints are left
out: that runs are whole, and that all periods go by one plan. Times are rounded in favour of the schedule.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor

from appliance.policies.dispatch.partition import Partition
from appliance.policies.milp import Program
from reproduce.band.phone import MOVE_MS, PROCESSORS, Phone

STEPS = 100
"""Steps of a period, to which times are rounded down."""
_LIMIT_S = 60.0
"""Time limit of a linear program; it takes far less."""


def bound_ms(phone: Phone, networks: Sequence[str]) -> float:
    """Return a lower bound on the time to run these networks on idle processors without noise."""
    program = Program()
    end = program.column(1e9)
    busy: dict[str, dict[int, float]] = {processor: {end: -1.0} for processor in PROCESSORS}
    for name, count in sorted(Counter(networks).items()):
        _flow(program, phone, name, count, busy)
    for terms in busy.values():
        program.at_most(0.0, terms)
    return program.least({end: 1.0}).value


def _flow(program: Program, phone: Phone, name: str, count: int, busy: dict[str, dict[int, float]]) -> None:
    """Add the requests of one network: the flow into a state on a processor continues from that state."""
    cut: Partition = phone.cut(name)
    balance: dict[tuple[int, str | None], dict[int, float]] = defaultdict(dict)
    for done in cut.order[:-1]:
        places: list[str | None] = [place for at, place in balance if at == done] if done else [None]
        for after, subgraph in cut.next[done]:
            indices = phone.networks[name].indices(subgraph.ops)
            for processor in subgraph.latency_ms:
                work_ms = phone.run_ms(phone.networks[name], indices, processor)
                for place in places:
                    arc = program.column(count)
                    balance[done, place][arc] = 1.0
                    if after != cut.whole:
                        balance[after, processor][arc] = -1.0
                    busy[processor][arc] = work_ms + (0.0 if place in (None, processor) else MOVE_MS)
    for (done, _place), arcs in balance.items():
        program.exactly(0.0 if done else count, arcs)


@dataclass(frozen=True, slots=True)
class Application:
    """`phase_ms`: when in a period its request comes; `slo_ms` after that it should be answered; `takes_ms`: by
    processor.
    """

    phase_ms: float
    slo_ms: float
    takes_ms: Mapping[str, float]


def satisfaction_bound(applications: Sequence[Application], period_ms: float) -> float:
    """Return a share of requests in time that no schedule exceeds."""
    step_ms = period_ms / STEPS
    program, objective = Program(), dict[int, float]()
    busy: dict[tuple[str, int], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for application in applications:
        own: dict[int, float] = {}
        came = floor(application.phase_ms / step_ms)
        for processor, takes_ms in application.takes_ms.items():
            steps = floor(takes_ms / step_ms)
            spare = ceil((application.slo_ms - takes_ms) / step_ms)
            for begins in range(came, came + spare + 1):
                column = program.column(1.0)
                own[column] = objective[column] = 1.0
                for at in range(begins, begins + steps):
                    busy[processor, at % STEPS][column] += 1.0
        program.at_most(1.0, own)
    if not objective:
        return 0.0
    for terms in busy.values():
        program.at_most(1.0, terms)
    return program.most(objective, _LIMIT_S, relaxed=True).bound / len(applications)
