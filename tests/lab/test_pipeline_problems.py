"""Kind `pipeline`: what is refused, and the line that says so; what is optional; what an answer holds."""

import copy
import math
from typing import Any

import pytest

from appliance.lab.plan import plan_one
from appliance.lab.problems.base import Malformed
from tests.instances import allocation as instances
from tests.lab.refusals import refusal


def _changed(path: str, value: object) -> dict[str, Any]:
    """The paper's problem with one key changed; `...` takes it out."""
    problem = copy.deepcopy(instances.paper())
    place: Any = problem
    *above, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    for step in above:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return problem


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("slo_ms", 0, "slo_ms: must be > 0"),
        ("slo_ms", "300", "slo_ms: must be a number"),
        ("slo_ms", math.inf, "slo_ms: must be a finite number"),
        ("slo_ms", ..., "slo_ms: is missing"),
        ("workers", [], "workers: must have at least 1"),
        ("workers/0/cost", -1, "workers[0].cost: must be >= 0"),
        ("workers/1/name", "X", "workers[1].name: 'X' is there twice"),
        ("workers/1/available", 1.5, "workers[1].available: must be a whole number"),
        ("modules/1/name", "A", "modules[1].name: 'A' is there twice"),
        ("modules/0/rate_rps", -80, "modules[0].rate_rps: must be >= 0"),
        ("modules/0/rate_rps", 1e9, "modules[0].rate_rps: needs more than 10000 instances of profiles[0]"),
        ("modules/0/ballooning", 0, "modules[0].ballooning: must be > 0"),
        ("modules/0/profiles", [], "modules[0].profiles: must have at least 1"),
        ("modules/0/profiles/1/worker", "Z", "modules[0].profiles[1].worker: 'Z' is not one of: X, Y"),
        ("modules/0/profiles/1/batch", 0, "modules[0].profiles[1].batch: must be >= 1"),
        ("modules/0/profiles/1/latency_ms", 0, "modules[0].profiles[1].latency_ms: must be > 0"),
        ("modules/0/profiles/1/throughput_rps", 0, "modules[0].profiles[1].throughput_rps: must be > 0"),
        ("workers/0/kind", "cpu", "modules[0].profiles[0].batch: must be 1 on a worker of kind cpu"),
        ("edges", [["A", "C"]], "edges[0][1]: 'C' is not one of: A, B"),
        ("edges", [["A"]], "edges[0]: must have at least 2"),
        ("edges", [["A", "B"], ["B", "A"]], "edges: have a cycle through 'A'"),
        ("edges", [["A", "A"]], "edges: have a cycle through 'A'"),
        ("cost_by", "energy", "modules[0].profiles[0].power_w: is missing, and cost_by is energy"),
        ("batch_wait", "half", "batch_wait: "),
        ("batch_wait", None, "batch_wait: "),
        ("policy", "best", "policy: 'best' is not one of: "),
        ("existing", [{"worker": "Z", "index": 0}], "existing[0].worker: 'Z' is not one of: X, Y"),
        (
            "existing",
            [{"worker": "Y", "index": 0}, {"worker": "Y", "index": 0}],
            "existing[1].index: 'Y' has 0 twice",
        ),
        (
            "existing",
            [{"worker": "Y", "index": 0, "parts": [{"module": "a", "share": 0.6}, {"module": "b", "share": 0.6}]}],
            "existing[0].parts: have shares of more than 1 in all",
        ),
    ],
)
def test_malformed_pipeline_problem_names_its_key(path: str, value: object, message: str) -> None:
    assert refusal(_changed(path, value)).startswith(message)


def test_contradicting_worker_groups_are_refused() -> None:
    """A group has one number of workers, a name of its own, and room for what runs on one of its workers."""

    def refused(workers: list[dict[str, Any]], **more: Any) -> str:
        return refusal({**instances.paper(), "workers": workers, **more})

    x, y = ({"name": name, "cost": 2, "group": "cores", "available": 4} for name in "XY")
    assert plan_one({**instances.paper(), "workers": [x, y]})["feasible"]
    message = "workers[1].available: must be that of 'X', which is of the same group"
    assert refused([x, {**y, "available": 3}]) == message
    assert refused([{**x, "group": "Y"}, {**y, "group": None}]) == "workers[1].name: is that of a group"
    parts = [{"module": "a", "share": 0.6}]
    existing = [{"worker": name, "index": 0, "parts": parts} for name in "XY"]
    assert refused([x, y], existing=existing) == "existing[1].parts: have shares of more than 1 in all"


def test_contradicting_profiles_are_refused() -> None:
    """A configuration may be written twice only if both say the same."""
    problem = instances.paper()
    profiles = problem["modules"][0]["profiles"]
    profiles.append(dict(profiles[0]))
    assert plan_one(problem)["feasible"]
    profiles[-1]["latency_ms"] += 1
    with pytest.raises(Malformed, match=r"modules\[0\].profiles\[4\]: 'X' has batch 2, concurrency 1 twice"):
        plan_one(problem)


def test_infeasible_slo_is_answered_with_the_nearest_latency() -> None:
    """An SLO that no configuration keeps is no error: the answer says so, with the nearest it could do."""
    answer = plan_one(instances.paper(40.0))
    assert answer["feasible"] is False
    assert answer["cost"] is answer["latency_ms"] is None
    assert "75.5 ms" in str(answer["reason"])


def test_module_without_input_is_passed_through() -> None:
    """What is behind the module still comes after what is before it."""
    problem = instances.drawn(1, "chain3")
    problem["modules"][1]["rate_rps"] = 0
    without = {**problem, "modules": [problem["modules"][0], problem["modules"][2]], "edges": [["m0", "m2"]]}
    answer, same = plan_one(problem), plan_one(without)
    assert (answer["cost"], answer["latency_ms"]) == (same["cost"], same["latency_ms"])


@pytest.mark.parametrize(("cost_by", "expected"), [("price", 3.0), ("energy", 25.0), ("seconds", 0.5)])
def test_pipeline_cost_is_by_price_energy_or_seconds(cost_by: str, expected: float) -> None:
    """Half a worker costs half its price, half its watts, or half a second a second (SC-30); a CPU worker counts as
    any other (SC-01).
    """
    problem = {
        "kind": "pipeline",
        "slo_ms": 1000,
        "cost_by": cost_by,
        "workers": [{"name": "host", "kind": "cpu", "cost": 6}],
        "modules": [
            {
                "name": "crop",
                "rate_rps": 50,
                "profiles": [{"worker": "host", "batch": 1, "concurrency": 2, "latency_ms": 20, "power_w": 50}],
            }
        ],
    }
    answer = plan_one(problem)
    assert answer["cost"] == pytest.approx(expected)
    assert answer["cost_by"] == cost_by
