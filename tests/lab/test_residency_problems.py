"""Kind `residency`: the format's example, what is refused and with which key."""

import copy
from typing import Any

import pytest

from appliance.lab.plan import plan_one
from appliance.lab.problems.base import Malformed
from appliance.policies.residency.base import PROMISED
from tests.instances.residency import application, problem
from tests.lab.refusals import refusal


def _written() -> dict[str, Any]:
    return problem([application("face_recognition"), application("text_classification", "FP32")], "face_recognition")


def test_residency_answer_has_every_key() -> None:
    """With the box's default policy, and free memory after all actions."""
    answer: Any = plan_one(_written())
    assert set(answer) == {"outcome", "serve", "actions", "free_mb", "reason", "elapsed_ms"}
    assert (answer["outcome"], answer["serve"]) == ("cold", "FP32")
    assert answer["free_mb"] == pytest.approx(1500 - 535.1 - 499.0)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("request", "nobody", "request: 'nobody' is not one of: face_recognition, text_classification"),
        ("request", None, "request: is missing"),
        ("policy", "best", "policy: 'best' is not one of: "),
        ("memory_mb", 0, "memory_mb: must be > 0"),
        ("memory_mb", 400, "memory_mb: is less than the 499 MB of the variants that are resident"),
        ("delta_s", -1, "delta_s: must be >= 0"),
        ("applications", [], "applications: must have at least 1"),
        ("applications/0/name", "text_classification", "applications[1].name: 'text_classification' is there twice"),
        ("applications/0/resident", "FP8", "applications[0].resident: 'FP8' is not one of: FP32, FP16, INT8"),
        ("applications/0/variants", [], "applications[0].variants: must have at least 1"),
        ("applications/0/variants/1/name", "FP32", "applications[0].variants[1].name: 'FP32' is there twice"),
        ("applications/0/variants/0/size_mb", 0, "applications[0].variants[0].size_mb: must be > 0"),
        ("applications/0/variants/0/peak_mb", 1, "applications[0].variants[0].peak_mb: must be >= size_mb"),
        ("applications/0/unexpected_probability", 2, "applications[0].unexpected_probability: must be <= 1"),
        ("applications/0/prediction_hit_rate", 1.1, "applications[0].prediction_hit_rate: must be <= 1"),
        ("applications/0/last_request_s", 2000, "applications[0].last_request_s: must be <= now_s"),
        ("applications/0/accuracy_min", 99, "applications[0].accuracy_min: is reached by no variant"),
        ("applications/0/keep", [{"variant": "x", "until_s": 1}], "applications[0].keep[0].variant: 'x' is not one of"),
        ("tenants", [{"name": "t", "guarantee_mb": 2000}], "tenants: are guaranteed more than memory_mb together"),
        (
            "tenants",
            [{"name": "t", "guarantee_mb": 2, "ceiling_mb": 1}],
            "tenants[0].guarantee_mb: must be <= ceiling_mb",
        ),
    ],
)
def test_malformed_residency_problem_names_its_key(path: str, value: object, message: str) -> None:
    written = copy.deepcopy(_written())
    place: Any = written
    *above, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    for step in above:
        place = place[step]
    place[last] = value
    assert refusal(written).startswith(message)


def test_residency_problem_with_an_unlisted_tenant_is_refused() -> None:
    """Where tenants are listed, an application's is one of them."""
    written = {**_written(), "tenants": [{"name": "t"}]}
    written["applications"][1]["tenant"] = "u"
    with pytest.raises(Malformed, match=r"applications\[1\].tenant: 'u' is not one of: t"):
        plan_one(written)


def test_wish_for_a_promised_variant_is_read() -> None:
    """Its priority is above any other."""
    written = problem([application("face_recognition")], "face_recognition")
    one = written["applications"][0]
    one["keep"] = [{"variant": one["variants"][0]["name"], "until_s": 1, "priority": PROMISED}]
    assert "outcome" in plan_one(written)
