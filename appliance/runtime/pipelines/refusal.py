"""Why a client is refused: what there is not enough of, for how many of its frames there would be room, and who has
none. Pure, but for the policy that it asks.
"""

from dataclasses import dataclass, replace

from appliance.domain.session import RATE_MIN
from appliance.policies.allocation.base import AllocationInput, AllocationPolicy, Existing
from appliance.policies.allocation.several import Served, at_rate
from appliance.runtime.pipelines.accounts import HOST

PARTS = (0.75, *(0.5**times for times in range(1, 11)))
"""Of the frames of a refused client that are tried in turn, to say what would be possible."""


@dataclass(frozen=True, slots=True)
class RefusedClient:
    """A client that was refused: its pipeline's problem for one frame a second, what others take, the frames that are
    served, and those that it asked for.
    """

    per_frame: AllocationInput
    existing: tuple[Existing, ...]
    served_fps: float
    asked_fps: float


def lacks(lacking: AllocationInput, beside: RefusedClient, policy: AllocationPolicy) -> tuple[tuple[str, ...], float]:
    """What there is not enough of for a problem, and for how many frames of a client there would be room."""
    missing = _missing(lacking, policy)
    for fps in (part * beside.asked_fps for part in PARTS):
        if fps < RATE_MIN:  # no client may ask for less
            break
        if policy.plan(at_rate(beside.per_frame, beside.served_fps + fps, beside.existing)).feasible:
            return missing, fps
    return missing, 0.0


def _missing(problem: AllocationInput, policy: AllocationPolicy) -> tuple[str, ...]:
    """What would serve it were there more of it: processors of a kind; or nothing would, for the SLO is too small."""
    endless = tuple(replace(one, available=0 if one.available == 0 else None) for one in problem.workers)
    plan = policy.plan(replace(problem, workers=endless, existing=()))
    if not plan.feasible:
        return ("time",)
    wanted = {place.worker for place in plan.placement if place.worker != HOST} or {HOST}
    scarce = {one.pool for one in problem.workers if one.name in wanted and one.available is not None}
    return tuple(f"processor {one.name}" for one in problem.workers if one.name in wanted and one.pool in scarce)


def own_words(served: Served, is_other: bool) -> str:
    """The policy's reason; of another pipeline nothing, which may be another tenant's."""
    return "the processors are taken" if is_other else served.plan.reason
