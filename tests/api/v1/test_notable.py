"""Why was that answer slow? The notable requests of an application, as its tenant and as an admin see them."""

import datetime
import math
from dataclasses import replace
from typing import Any

import pytest

from appliance.api.v1.notable import decision_behind
from appliance.domain.decisions import DecisionRecord
from appliance.domain.notable import Cause
from tests.api.stand import Stand

pytestmark = pytest.mark.anyio
AT = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


async def shown(stand: Stand, who: str, application: str = "adding", **headers: str) -> list[dict[str, Any]]:
    answer = await stand.client(who, **headers).get(f"/v1/applications/{application}/requests")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
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
    first = await stand.client("harbour").post("/v2/models/adding/infer", json={"id": "mine", "inputs": tensors})
    assert first.status_code == 200, first.text
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


def decided(id: int, kind: str, seconds: float) -> DecisionRecord:
    at = AT + datetime.timedelta(seconds=seconds)
    return DecisionRecord(at, kind, "t/a", (("t/a", "t"),), {}, {"reason": "", "actions": []}, id)


@pytest.mark.parametrize(
    ("causes", "found"),
    [
        ((Cause.COLD,), 4),
        ((Cause.FAILED, Cause.LATE), 5),
        ((Cause.SMALLER,), 4),
        ((Cause.SAMPLE,), None),
        ((Cause.LATE,), 5),
    ],
)
def test_decision_behind_a_request_is_the_latest_of_a_fitting_kind(
    causes: tuple[Cause, ...], found: int | None
) -> None:
    """From before the end of the request, and not too long ago for its cause."""
    decisions = [decided(9, "residency", 30), decided(5, "drop", -1), decided(4, "residency", -2)]
    decisions += [decided(3, "selection", -500), decided(2, "budget", -501)]
    behind = decision_behind(causes, AT, decisions)
    assert (None if behind is None else behind.id) == found


def test_decision_behind_a_cold_start_is_about_its_application() -> None:
    """Not a decision that the box made for itself while the variant was loading."""
    own = replace(decided(2, "residency", -0.5), application=None)
    behind = decision_behind((Cause.COLD,), AT, [own, decided(1, "residency", -1)])
    assert behind is not None
    assert behind.id == 1
    assert decision_behind((Cause.COLD,), AT, [own]) == own


def test_decision_of_an_hour_ago_explains_no_cold_start() -> None:
    """A decision of that age does explain a choice of variant."""
    decisions = [decided(1, "residency", -3600)]
    assert decision_behind((Cause.COLD,), AT, decisions) is None
    behind = decision_behind((Cause.SMALLER,), AT, decisions)
    assert behind is not None
