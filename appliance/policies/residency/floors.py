"""Between requests, under `ws-bfe` and `iws-bfe`: an application that was asked before and has nothing in memory gets
its smallest variant (Edge-MultiAI §III-B1 and III-B4, EM-11), so that a request which no forecast announced is warm.

An application comes to have nothing where even its smallest variant was in the way of another one's load; a load takes
more than what stays of it, so that variant may fit again a moment later. The paper's algorithms answer requests only.
"""

from appliance.policies.residency.base import ApplicationState, Change, ResidencyPlan, ResidencyProblem
from appliance.policies.residency.space import Space

_NEVER_NS = 1 << 63


def bring_floors(problem: ResidencyProblem) -> ResidencyPlan:
    """Smallest variants into free memory; nothing gives way for them. The application whose request is expected first
    goes first, of others the one that was asked last; ties by name.
    """
    space, changes = Space(problem), list[Change]()
    absent = [
        application
        for application in problem.applications
        if application.resident is None and application.last_request_ns is not None and not application.pinned
    ]
    for application in sorted(absent, key=_rank):
        floor = application.floor
        if space.short_bytes(None, floor) <= 0 and space.over_ceiling_bytes(application, None, floor) <= 0:
            space.take(application, None, floor)
            changes.append(Change(application.name, None, floor.name))
    if not changes:
        return ResidencyPlan("warm", None, (), "no smallest variant is missing that fits into free memory")
    reason = ", ".join(f"{change.after} of {change.application}" for change in changes)
    return ResidencyPlan("cold", None, tuple(changes), f"{reason}: smallest variants, into free memory")


def _rank(application: ApplicationState) -> tuple[int, int, str]:
    next_ns, last_ns = application.next_request_ns, application.last_request_ns
    return _NEVER_NS if next_ns is None else next_ns, -(last_ns or 0), application.name
