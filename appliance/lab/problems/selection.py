"""Kind `selection`: in which order an application's variants answer requests that name none.

`prefer` is `accuracy`, `balanced` or `speed`; `loss_max` is what `balanced` may lose, and `accuracy_min` the least, in
the unit of the variants' `accuracy`; `meaning` is what the reason calls it. Of each variant: `loss`, how far it may be
behind the most accurate one at 95 %; `p50_ms` and `p99_ms` of a run of one item (each may be null: not known);
`size_mb` in memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from appliance.domain.accuracy import ACCURACY
from appliance.domain.catalogue import Prefer
from appliance.domain.units import BYTES_PER_MB
from appliance.lab.problems.base import Name, NotNegative, Positive, Question, Shape, known, refuse_duplicates, shaped
from appliance.policies.selection import DEFAULT, SELECTION_POLICIES
from appliance.policies.selection.base import SelectionInput, SelectionPlan
from appliance.runtime.decisions.choices import answer_json

VARIANTS_MAX = 4096
Points = Annotated[float, Field(ge=-1e15, le=1e15)]


class _Variant(Shape):
    name: Name
    accuracy: Points
    loss: Points | None = None
    p50_ms: NotNegative | None = None
    p99_ms: NotNegative | None = None
    size_mb: NotNegative = 0.0


class _Problem(Shape):
    policy: str = DEFAULT
    prefer: Name = Prefer.BALANCED.value
    latency_slo_ms: Positive | None = None
    accuracy_min: Points = 0.0
    loss_max: NotNegative = 0.0
    meaning: Name = ACCURACY
    variants: Annotated[list[_Variant], Field(max_length=VARIANTS_MAX)]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A variant as it is written."""

    name: str
    accuracy: float
    loss: float | None
    p50_ms: float | None
    p99_ms: float | None
    resident_bytes: int


def read(document: Mapping[str, Any]) -> Question[SelectionPlan]:
    """The problem as a question to its policy. Raises: Malformed."""
    written = shaped(_Problem, document)
    policy = SELECTION_POLICIES[known(written.policy, SELECTION_POLICIES, "policy")]()
    prefer = Prefer(known(written.prefer, [one.value for one in Prefer], "prefer"))
    refuse_duplicates((variant.name for variant in written.variants), "variants")
    candidates = [
        Candidate(one.name, one.accuracy, one.loss, one.p50_ms, one.p99_ms, round(one.size_mb * BYTES_PER_MB))
        for one in written.variants
    ]
    problem = SelectionInput(
        candidates, written.latency_slo_ms, written.accuracy_min, prefer, written.loss_max, written.meaning
    )
    return Question(lambda: policy.order(problem), answer_json)
