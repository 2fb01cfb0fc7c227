"""The memory budget, by what the machine can spare (Edge-MultiAI, section 3: the free memory changes)."""

from collections.abc import Sequence
from dataclasses import dataclass

from appliance.domain.units import BYTES_PER_MB

STEP_BYTES = 16 * 2**20
"""The budget moves in such steps, so that the breath of other programs moves it seldom."""
GIVEN_BACK = 1 / 8
"""Of what is used, at each word of processes that stand for want of memory."""
KEPT = 1 / 4
"""Of the largest budget: that word alone never makes it smaller."""


@dataclass(frozen=True, slots=True)
class BudgetInput:
    """Bytes."""

    before: int
    """The budget until now."""
    most: int
    reserve: int
    """Stays free for other programs."""
    spare: Sequence[int]
    """The least that the box could have, as forecast at each of the latest samples, the last one last."""
    may_grow: bool
    """Whether there are enough samples, and it is long enough since processes stood for want of memory."""
    stalled_used: int | None = None
    """What is used while processes stand for want of memory; None: none stands."""


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    budget: int
    reason: str
    """Empty where the budget stays."""


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
