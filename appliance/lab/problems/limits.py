"""Problems of kinds `admission`, `drop` and `budget`.

`admission`: figures and bounds, each of which may be left out: `running` requests of the tenant and
`concurrent_requests`; `tokens`, what is left of its requests of this second; `waiting` and `queue_len_max`;
`expected_ms` until the answer and `allowed_ms`.

`drop`: `waited_ms` since the arrival, `expected_ms` of a run, `deadline_ms` after the arrival.

`budget`: `before_mb`, `most_mb`, `reserve_mb`, `spare_mb` (the least that the box could have, as forecast at the latest
samples), `may_grow`, `stalled_used_mb` (what is used while processes stand for want of memory, else null).
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from appliance.domain.units import BYTES_PER_MB
from appliance.lab.problems.base import NotNegative, Question, Shape, shaped
from appliance.policies.limits.budget import BudgetInput, BudgetPlan, budget
from appliance.policies.limits.requests import AdmissionInput, is_too_late, refused_by
from appliance.runtime.decisions.limits import budget_answer

SAMPLES_MAX = 4096
Count = Annotated[int, Field(ge=0, le=10**12)]
Time = Annotated[float, Field(ge=-1e15, le=1e15)]


class _Admission(Shape):
    running: Count = 0
    concurrent_requests: Count | None = None
    tokens: Time | None = None
    waiting: Count = 0
    queue_len_max: Count | None = None
    expected_ms: NotNegative = 0.0
    allowed_ms: NotNegative | None = None


class _Drop(Shape):
    waited_ms: Time
    expected_ms: NotNegative | None = None
    deadline_ms: Time


class _Budget(Shape):
    before_mb: NotNegative
    most_mb: NotNegative
    reserve_mb: NotNegative = 0.0
    spare_mb: Annotated[list[NotNegative], Field(min_length=1, max_length=SAMPLES_MAX)]
    may_grow: bool = True
    stalled_used_mb: NotNegative | None = None


def read_admission(document: Mapping[str, Any]) -> Question[str | None]:
    """Raises: Malformed."""
    problem = AdmissionInput(**shaped(_Admission, document).model_dump())

    def answer(bound: str | None) -> dict[str, Any]:
        reason = "no bound is reached" if bound is None else f"{bound}: the bound is reached"
        return {"outcome": "admitted" if bound is None else "refused", "actions": [], "reason": reason}

    return Question(lambda: refused_by(problem), answer)


def read_drop(document: Mapping[str, Any]) -> Question[bool]:
    """Raises: Malformed."""
    told = shaped(_Drop, document)
    end_ms = told.waited_ms + (told.expected_ms or 0.0)

    def answer(is_dropped: bool) -> dict[str, Any]:
        reason = f"a run that begins now ends after {end_ms:.1f} ms, {told.deadline_ms:.1f} are allowed"
        return {"outcome": "dropped" if is_dropped else "kept", "actions": [], "reason": reason}

    return Question(lambda: is_too_late(told.waited_ms, told.expected_ms, told.deadline_ms), answer)


def read_budget(document: Mapping[str, Any]) -> Question[BudgetPlan]:
    """Raises: Malformed."""
    told = shaped(_Budget, document)
    stalled = told.stalled_used_mb
    problem = BudgetInput(
        _bytes(told.before_mb),
        _bytes(told.most_mb),
        _bytes(told.reserve_mb),
        tuple(map(_bytes, told.spare_mb)),
        told.may_grow,
        None if stalled is None else _bytes(stalled),
    )
    return Question(lambda: budget(problem), lambda plan: budget_answer(problem, plan))


def _bytes(megabytes: float) -> int:
    return round(megabytes * BYTES_PER_MB)
