"""Figures of how applications were served, out of the box's own counters."""

from collections.abc import Iterable, Iterator

from appliance.api.box import RunningBox
from appliance.domain.errors import ModelUnavailable
from appliance.domain.robustness import Served, served
from appliance.runtime.telemetry import Statistics
from appliance.wire.catalogue import ServedShape


def served_by(box: RunningBox, application_id: str, figures: Iterable[tuple[str, Statistics]]) -> Served:
    """Return what came of an application's requests; `figures` with the name of their variant."""
    counts: dict[str, tuple[int, int]] = {}
    requests = 0
    for name, one in figures:
        warm, cold = counts.get(name, (0, 0))
        counts[name] = warm + one.warm, cold + one.cold
        requests += sum(one.outcomes.values())
    try:
        entry = box.catalogue.entry(application_id)
    except ModelUnavailable:
        points: dict[str, float] = {}
    else:
        may_answer = {name: one.accuracy for name, one in entry.servables.items()}
        points = {one.name: one.accuracy_points for one in entry.model.variants if one.name in counts} | may_answer
    return served(counts, requests, points)


def each_served(box: RunningBox, tenant: str | None) -> Iterator[Served]:
    """Yield what came of the requests of each application; of all tenants' applications, or of one tenant's."""
    for application in box.telemetry.applications():
        if tenant is None or application.partition("/")[0] == tenant:
            figures = [(variant, one) for variant, _caller, one in box.telemetry.of_callers(application)]
            yield served_by(box, application, figures)


def served_shape(found: Served) -> ServedShape:
    return ServedShape(
        requests=found.requests,
        warm=found.warm,
        cold=found.cold,
        warm_share=found.warm_share,
        cold_share=found.cold_share,
        accuracy=found.accuracy,
        accuracy_normalised=found.normalised,
        robustness=found.robustness,
    )
