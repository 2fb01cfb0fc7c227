"""Why was that answer slow? The notable requests of an application, as its tenant and as an admin see them."""

import datetime
import math
from typing import Any

import pytest

from appliance.api.v1.notable import decision_behind
from appliance.domain.decisions import DecisionRecord
from appliance.domain.notable import Cause
from tests.api.stand import Stand, good

pytestmark = pytest.mark.anyio
AT = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


async def shown(stand: Stand, who: str, application: str = "adding", **headers: str) -> list[dict[str, Any]]:
    answer = await good(stand.client(who, **headers).get(f"/v1/applications/{application}/requests"))
    found: list[dict[str, Any]] = answer
    return found


async def test_notable_cold_start_is_shown_to_its_tenant_and_admins(stand: Stand) -> None:
    """With its times, the reason in words and the decision behind it; other tenants do not see it, and what was sent is
    not shown.
    """
    inputs = (await stand.client().get("/v2/models/adding")).json()["inputs"]
    shapes = {one["name"]: [2 if size < 0 else size for size in one["shape"]] for one in inputs}
    tensors = [
        {"name": name, "shape": shape, "datatype": "FP32", "data": [3.0] * math.prod(shape)}
        for name, shape in shapes.items()
    ]
    await good(stand.client("harbour").post("/v2/models/adding/infer", json={"id": "mine", "inputs": tensors}))
    [one] = await shown(stand, "harbour")
    assert (one["causes"], one["id"], one["tenant"]) == (["cold"], "mine", None)
    assert (one["variant"], one["best"], one["problem"]) == ("fp32", "fp32", None)
    assert one["why"].startswith("no variant was in memory: fp32 was loaded first (")
    assert 0 < one["timings_ms"]["load"] <= one["timings_ms"]["total"]
    assert await shown(stand, "museum") == []
    [seen] = await shown(stand, "admin")
    assert seen["tenant"] == "harbour"
    assert (await stand.client("device").get("/v1/applications/digits/requests")).status_code == 403
    assert (await stand.client("harbour").get("/v1/applications/none/requests")).status_code == 404


def decided(id: int, kind: str, seconds: float, application: str | None = "t/a") -> DecisionRecord:
    at = AT + datetime.timedelta(seconds=seconds)
    return DecisionRecord(at, kind, application, (("t/a", "t"),), {}, {"reason": "", "actions": []}, id)


DECISIONS = (
    decided(9, "residency", 30),
    decided(5, "drop", -1),
    decided(4, "residency", -2),
    decided(3, "selection", -500),
    decided(2, "budget", -501),
)
OLD = decided(1, "residency", -3600)
OWN = decided(2, "residency", -0.5, None)
"""That the box made for itself while the variant was loading."""


@pytest.mark.parametrize(
    ("causes", "decisions", "found"),
    [
        ((Cause.COLD,), DECISIONS, 4),
        ((Cause.FAILED, Cause.LATE), DECISIONS, 5),
        ((Cause.SMALLER,), DECISIONS, 4),
        ((Cause.SAMPLE,), DECISIONS, None),
        ((Cause.LATE,), DECISIONS, 5),
        ((Cause.COLD,), (OWN, decided(1, "residency", -1)), 1),
        ((Cause.COLD,), (OWN,), 2),
        ((Cause.COLD,), (OLD,), None),
        ((Cause.SMALLER,), (OLD,), 1),
    ],
)
def test_decision_behind_a_request_is_the_latest_of_a_fitting_kind(
    causes: tuple[Cause, ...], decisions: tuple[DecisionRecord, ...], found: int | None
) -> None:
    """From before the end of the request, not too long ago for its cause, and about its application where one is."""
    behind = decision_behind(causes, AT, list(decisions))
    assert (None if behind is None else behind.id) == found
