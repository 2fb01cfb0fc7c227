"""The memory budget, which follows the memory that the machine can spare (Edge-MultiAI: free memory changes)."""

from collections.abc import Sequence
from dataclasses import dataclass

from appliance.domain.units import BYTES_PER_MB

STEP_BYTES = 16 * 2**20
"""The budget moves in such steps, so that the breath of other programs moves it seldom."""
GIVEN_BACK = 1 / 8
"""Share of the used memory that is given back each time processes stand for want of memory."""
KEPT = 1 / 4
"""Share of the largest budget that such stalls alone never take."""


@dataclass(frozen=True, slots=True)
class BudgetInput:
    """Bytes."""

    before: int
    """The budget until now."""
    most: int
    reserve: int
    """Memory that stays free for other programs."""
    spare: Sequence[int]
    """Forecasts of the least memory that the box could have, one for each of the latest samples, the latest last."""
    may_grow: bool
    """True with enough samples, long enough after the last stall."""
    stalled_used: int | None = None
    """Memory in use during a stall; None: no process stands for want of memory."""


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    budget: int
    reason: str
    """Sentence for a person; empty where the budget stays."""


def budget(problem: BudgetInput) -> BudgetPlan:
    """Return the budget from now on: smaller at once where the forecast or a stall says so, larger where all samples
    say so.
    """
    low, used = problem.spare[-1], problem.stalled_used
    if used is not None:
        kept = max(0, used - max(STEP_BYTES, int(used * GIVEN_BACK)))
        wanted = max(_stepped(kept), int(problem.most * KEPT))
        why = "processes stand for want of memory"
        return _told(problem, wanted, low, why) if wanted < problem.before else BudgetPlan(problem.before, "")
    allowed = [min(problem.most, _stepped(max(0, one - problem.reserve))) for one in problem.spare]
    if allowed[-1] < problem.before:
        return _told(problem, allowed[-1], low, "other programs will leave less")
    if problem.may_grow and min(allowed) > problem.before:
        return _told(problem, min(allowed), low, "other programs have left more for a while")
    return BudgetPlan(problem.before, "")


def _stepped(count: int) -> int:
    return count - count % STEP_BYTES


def _told(problem: BudgetInput, wanted: int, low: int, why: str) -> BudgetPlan:
    free = problem.reserve / BYTES_PER_MB
    return BudgetPlan(wanted, f"{why}: {low / BYTES_PER_MB:.0f} MB, of which {free:.0f} stay free")
