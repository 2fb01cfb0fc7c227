"""What a clairvoyant could do with a scenario's requests: the bounds of `bound` and the plan of `clairvoyant`, side
by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from appliance.lab.clairvoyant.bound import bounds
from appliance.lab.clairvoyant.chains import Schedule
from appliance.lab.clairvoyant.plan import reached
from appliance.lab.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Reference:
    """Bounds on the share of cold and, with at most `cold` of them, on utility; and what the clairvoyant's own plan
    reaches.
    """

    cold_least: float
    cold: float
    utility_most: float
    cold_reached: float
    utility_reached: float


def references(scenario: Scenario, colds: Sequence[float]) -> list[Reference]:
    """One for each share of requests that may be cold (not warm).

    Raises: ValueError for a scenario without requests, or with something that the clairvoyant does not know; Malformed
    (of a trace file).
    """
    if len(scenario.box.processors) > 1 or scenario.has_graphs:
        raise ValueError("several processors")
    schedule = Schedule.of(scenario)
    requests = len(schedule.asks)
    found = bounds(schedule, [cold * requests for cold in colds])
    loads_max, workers = scenario.box.loads_parallel_max, scenario.processor.concurrency
    planned = reached(schedule, loads_parallel_max=loads_max, workers=workers)
    return [
        Reference(bound.cold_least / requests, cold, bound.utility_most, planned.cold, planned.utility)
        for cold, bound in zip(colds, found, strict=True)
    ]
