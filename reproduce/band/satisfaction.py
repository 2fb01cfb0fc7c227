"""How many requests of periodic applications could be in time at the very best, with all of them known beforehand.

Whatever a schedule does in a long time, the share of an application's requests that begin on a processor so long after
they came is one column of a linear program: each processor has one period's time for what begins in a period, at each
phase of it, and who does not end in time does not count. That runs are whole, and that one period's requests go by the
same plan as the next one's, is left out, and times are rounded in favour of the schedule: nothing can do better.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor

from appliance.policies.milp import Program

STEPS = 100
"""Of a period: times are rounded down to so many."""
_LIMIT_S = 60.0
"""Many times what it takes."""


@dataclass(frozen=True, slots=True)
class Application:
    """`phase_ms`: when in a period its request comes; `slo_ms` after that it should be answered; `takes_ms`: by
    processor.
    """

    phase_ms: float
    slo_ms: float
    takes_ms: Mapping[str, float]


def satisfaction_bound(applications: Sequence[Application], period_ms: float) -> float:
    """No schedule answers a larger share of the requests in time."""
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
