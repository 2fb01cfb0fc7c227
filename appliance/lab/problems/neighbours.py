"""Kind `neighbours`: which variant next to those in use comes next into memory that nobody else wants (Jellyfish §IV-D,
by bytes).

`free_mb` is neither taken nor promised; `reserve_mb` of it is left to others. Of each variant: `distance`, places from
the nearest one in use (0: it is in use); `size_mb`, what its leaving frees; `need_mb`, what must be free for it to come
(absent: `size_mb`); `resident`. Of equally near ones the first comes first.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from appliance.domain.units import BYTES_PER_MB
from appliance.lab.problems.base import Name, NotNegative, Question, Shape, refuse_duplicates, shaped
from appliance.policies.residency.neighbours import Neighbour, NeighbourPlan, NeighbourProblem, next_neighbour
from appliance.runtime.decisions.neighbours import answer_json

VARIANTS_MAX = 4096
DISTANCE_MAX = 10**6


class _Variant(Shape):
    name: Name
    distance: Annotated[int, Field(ge=0, le=DISTANCE_MAX)]
    size_mb: NotNegative
    need_mb: NotNegative | None = None
    resident: bool = False


class _Problem(Shape):
    free_mb: Annotated[float, Field(ge=-1e12, le=1e12)]
    reserve_mb: NotNegative = 0.0
    variants: Annotated[list[_Variant], Field(max_length=VARIANTS_MAX)]


def read(document: Mapping[str, Any]) -> Question[NeighbourPlan]:
    """The problem as a question to its policy. Raises: Malformed."""
    written = shaped(_Problem, document)
    refuse_duplicates((variant.name for variant in written.variants), "variants")
    problem = NeighbourProblem(
        _bytes(written.free_mb), _bytes(written.reserve_mb), tuple(_neighbour(variant) for variant in written.variants)
    )
    return Question(lambda: next_neighbour(problem), answer_json)


def _neighbour(written: _Variant) -> Neighbour:
    need_mb = written.size_mb if written.need_mb is None else written.need_mb
    return Neighbour(written.name, written.distance, _bytes(written.size_mb), _bytes(need_mb), written.resident)


def _bytes(megabytes: float) -> int:
    return round(megabytes * BYTES_PER_MB)
