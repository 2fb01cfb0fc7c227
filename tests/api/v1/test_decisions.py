"""Stored decisions over HTTP: who sees what, page by page, and that they can be decided again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import httpx
import pytest

from appliance.lab.plan import plan_text
from appliance.policies.dispatch import DISPATCH_POLICIES
from appliance.policies.dispatch.base import DispatchInput, Job, Processor
from appliance.policies.dispatch.partition import uncut
from appliance.policies.residency.base import Change, ResidencyPlan, ResidencyProblem, TenantShare
from appliance.policies.residency.lru import LeastRecentlyUsed
from tests.api.stand import Stand, good, refusal
from tests.fakes.waiting import until
from tests.runtime.residency.residency_problems import problem

pytestmark = pytest.mark.anyio
MIXED = problem()
"""Of two tenants: harbour asks, and a third application is the museum's."""


TAKEN = ResidencyPlan(
    "cold", "int8", (Change("museum/sound", "fp32", "int8"), Change("harbour/face", None, "int8")), "ok"
)
"""Harbour's face is served at the cost of the museum's sound."""


async def stored(stand: Stand, kind: str, facts: dict[str, Any], times: int = 1) -> None:
    """Such a decision, written by the box."""
    await listed(stand.client())  # the writer begins when the box is first managed
    log = stand.appliance.running().decisions
    before = log.written
    for _ in range(times):
        log.record(kind, facts)
    await until(lambda: log.written >= before + times)  # a thread writes


async def decide(
    stand: Stand,
    times: int = 1,
    asked: ResidencyProblem = MIXED,
    plan: ResidencyPlan | None = None,
    sharing: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> None:
    """The box decides the mixed problem."""
    facts = {"problem": asked, "plan": plan or LeastRecentlyUsed().plan(asked), "policy": "lru", "sharing": sharing}
    await stored(stand, "residency", facts, times)


async def listed(client: httpx.AsyncClient, **query: str | int) -> list[Any]:
    answer = await good(client.get("/v1/decisions", params={"kind": "residency", **query}))
    items: list[Any] = answer["items"]
    return items


def replayed(text: str) -> Any:
    """What `appliance plan` answers."""
    return plan_text(text).answer


async def test_decisions_for_an_admin_are_whole_and_can_be_replayed(stand: Stand) -> None:
    """The page as it is goes to `appliance plan`, which answers as the box did."""
    await decide(stand)
    admin = stand.client()
    page = await admin.get("/v1/decisions", params={"limit": 1})
    (item,) = page.json()["items"]
    assert item["is_whole"] is True
    assert item["application"] == "harbour/face"
    assert item["answer"]["reason"] == item["reason"] != ""
    text = (await admin.get("/metrics")).text
    assert "appliance_decisions_total" in text
    assert "appliance_decisions_dropped_total 0.0" in text
    (answer,) = replayed(page.text)
    assert {**answer, "elapsed_ms": None} == {**item["answer"], "elapsed_ms": None}


async def test_decision_for_a_tenant_leaves_out_other_tenants(stand: Stand) -> None:
    """Harbour asked: its problem comes without the museum's application."""
    await decide(stand)
    harbour = stand.client("harbour")
    (item,) = await listed(harbour, limit=1)
    assert item["is_whole"] is False
    assert "museum" not in json.dumps(item)
    shown = item["problem"]
    assert [application["name"] for application in shown["applications"]] == ["harbour/face", "harbour/text"]
    plan_text(json.dumps(shown))


async def test_decision_that_changes_another_tenant_hides_the_requester(stand: Stand) -> None:
    """The museum's model shrinks for harbour's: the museum sees that, not for which tenant."""
    await decide(stand, plan=TAKEN)
    (item,) = await listed(stand.client("museum"), limit=1)
    assert "harbour" not in json.dumps(item)
    assert (item["application"], item["problem"]) == (None, None)
    assert item["concerned"] == ["museum/sound"]
    assert item["answer"] == {
        "actions": [{"application": "museum/sound", "from": "fp32", "to": "int8"}],
        "reason": "ok",
    }


async def test_decision_on_a_shared_model_concerns_all_its_tenants(stand: Stand) -> None:
    """Harbour's and the museum's applications use one model: the museum sees the decision as if it were about its
    own alone, and can replay it.
    """
    told = replace(TAKEN, reason="int8 of harbour/face is loaded")
    await decide(stand, plan=told, sharing={"harbour/face": ["harbour/face", "museum/mask"]})
    (item,) = await listed(stand.client("museum"), limit=1)
    assert "harbour" not in json.dumps(item)
    assert (item["application"], item["reason"]) == ("museum/mask", "int8 of museum/mask is loaded")
    assert item["concerned"] == ["museum/mask", "museum/sound"]
    shown = item["problem"]
    assert [application["name"] for application in shown["applications"]] == ["museum/mask", "museum/sound"]
    assert shown["request"] == "museum/mask"
    plan_text(json.dumps(shown))
    assert len(await listed(stand.client("museum"), application="mask")) == 1
    (seen,) = await listed(stand.client("harbour"), limit=1)
    assert seen["application"] == "harbour/face"
    assert "museum" not in json.dumps(seen)
    (whole,) = await listed(stand.client(), limit=1)
    assert whole["concerned"] == ["harbour/face", "museum/mask", "museum/sound"]


async def test_decision_for_a_tenant_leaves_out_memory_held_by_others(stand: Stand) -> None:
    """Without the museum's 500 MB, and without shares where the box has none; the other application is unnamed in the
    reason.
    """
    tell_tale = replace(TAKEN, reason="museum/sound is far off")
    await decide(stand, asked=problem(tenants=False), plan=tell_tale)
    (item,) = await listed(stand.client("harbour"), limit=1)
    shown = item["problem"]
    assert shown["memory_mb"] == pytest.approx(1200.000007 - 500.000001)
    assert "tenants" not in shown
    assert item["reason"] == "another's application is far off"
    assert item["answer"] == {
        "outcome": "cold",
        "serve": "int8",
        "reason": "another's application is far off",
        "actions": [{"application": "harbour/face", "from": None, "to": "int8"}],
    }


async def test_decision_that_concerns_one_tenant_only_is_whole_for_the_tenant(stand: Stand) -> None:
    """No application of others and no share: the same as the operator sees."""
    asked = problem(tenants=False)
    await decide(stand, asked=replace(asked, applications=asked.applications[:2]))
    (seen,), (all_of_it,) = await listed(stand.client("harbour"), limit=1), await listed(stand.client(), limit=1)
    assert seen == all_of_it
    assert seen["is_whole"] is True


async def test_decision_for_a_tenant_leaves_out_memory_shares_of_others(stand: Stand) -> None:
    """Also that of a tenant without any application in the problem."""
    asked = problem()
    shares = (*asked.tenants, TenantShare("museum", 1_000))
    await decide(stand, asked=replace(asked, applications=asked.applications[:2], tenants=shares))
    (item,) = await listed(stand.client("harbour"), limit=1)
    assert item["is_whole"] is False
    assert "museum" not in json.dumps(item)
    plan_text(json.dumps(item["problem"]))


async def test_decisions_are_listed_newest_first_and_filtered(stand: Stand) -> None:
    """In pages of one; an application by name or id; an unknown one gives an empty list."""
    await decide(stand, times=3)
    admin, harbour = stand.client(), stand.client("harbour")
    ids: list[object] = []
    cursor: str | None = ""
    while cursor is not None and len(ids) < 3:
        page = (await admin.get("/v1/decisions", params={"limit": 1, "cursor": cursor})).json()
        ids += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
    assert ids == sorted(ids, key=lambda id: -int(str(id)))
    assert len(set(ids)) == 3
    assert len(await listed(harbour, application="face", limit=3)) == 3
    assert len(await listed(admin, application="harbour/face", limit=3)) == 3
    assert await listed(harbour, application="museum/sound") == []
    assert await listed(admin, application="nobody") == []
    assert await listed(admin, kind="dispatch") == []
    assert (await admin.get("/v1/decisions", params={"cursor": "x"})).status_code == 422


async def test_decision_by_id_is_as_in_the_list_of_the_caller(stand: Stand) -> None:
    """A decision that concerned other tenants only is 404, as is one that was never made."""
    asked = problem(tenants=False)
    await decide(stand, asked=replace(asked, applications=asked.applications[:2]))
    admin, harbour, museum = stand.client(), stand.client("harbour"), stand.client("museum")
    (item,) = await listed(harbour, limit=1)
    path = f"/v1/decisions/{item['id']}"
    assert (await harbour.get(path)).json() == item
    assert (await admin.get(path)).status_code == 200
    for client, unseen in ((museum, path), (admin, "/v1/decisions/999999999")):
        assert refusal(await client.get(unseen)) == (404, "unknown-decision")
    assert (await admin.get("/v1/decisions/0")).status_code == 422


PLAIN: dict[str, Any] = {
    "application": "museum/sound",
    "concerned": (("harbour/face", "harbour"), ("museum/sound", "museum")),
    "problem": {
        "kind": "residency",
        "plan": None,
        "why": "no policy was asked",
        "rule": "last resort",
        "request": "museum/sound",
        "resident": [
            {"application": "harbour/face", "variant": "fp32", "mb": 30.0, "pinned": False, "idle_s": 1.0},
            {"application": "museum/sound", "variant": "int8", "mb": 10.0, "pinned": False, "idle_s": 2.0},
        ],
    },
    "answer": {
        "outcome": "cold",
        "actions": [{"application": "harbour/face", "from": "fp32", "to": None}],
        "reason": "harbour/face leaves for museum/sound",
    },
}
"""The arbiter's own decision: the museum's request at harbour's cost."""


async def test_decision_without_a_policy_is_masked_for_tenants(stand: Stand) -> None:
    """The tenant that asked sees the others' memory as a sum; the tenant that gave way sees that alone. `appliance
    plan` says why it has no answer.
    """
    await stored(stand, "residency", PLAIN)
    admin = await stand.client().get("/v1/decisions", params={"limit": 1})
    assert replayed(admin.text) == [{"plan": None, "reason": "no policy was asked"}]
    assert admin.json()["items"][0]["is_whole"] is True
    (asker,) = await listed(stand.client("museum"), limit=1)
    assert "harbour" not in json.dumps(asker)
    assert asker["reason"] == "another's application leaves for museum/sound"
    shown = asker["problem"]
    assert (shown["others_mb"], [row["mb"] for row in shown["resident"]]) == (30.0, [10.0])
    (victim,) = await listed(stand.client("harbour"), limit=1)
    assert "museum" not in json.dumps(victim)
    assert (victim["application"], victim["problem"]) == (None, None)
    assert victim["answer"]["actions"] == [{"application": "harbour/face", "from": "fp32", "to": None}]


async def test_refusal_of_a_shared_application_hides_its_owner_from_the_guest(stand: Stand) -> None:
    """The refusals by budget are the operator's."""
    refused = {
        "application": "museum/sound",
        "concerned": (("museum/sound", "harbour"),),
        "problem": {
            "kind": "admission",
            "plan": None,
            "why": "a count",
            "request": "museum/sound",
            "tenant": "harbour",
        },
        "answer": {"outcome": "refused", "actions": [], "reason": "3 requests of 'museum/sound' are waiting already"},
    }
    await stored(stand, "admission", refused)
    harbour = stand.client("harbour")
    (item,) = await listed(harbour, kind="admission", limit=1)
    assert "museum" not in json.dumps(item)
    assert item["application"] == "-/sound"
    assert item["reason"] == "3 requests of 'another's application' are waiting already"
    assert await listed(stand.client("museum"), kind="admission") == []
    budget = {**refused, "application": None, "concerned": (), "problem": {"kind": "budget", "plan": None, "why": "-"}}
    await stored(stand, "budget", budget)
    assert await listed(harbour, kind="budget") == []
    assert len(await listed(stand.client(), kind="budget")) == 1


async def test_dispatch_decision_can_be_replayed_and_hides_the_owner(stand: Stand) -> None:
    """The replay answers as the box did; a guest is not told whose the application is."""
    partition = uncut("run", {"big": 4.0, "little": 9.5})
    problem = DispatchInput(
        0.0, (Processor("big", 7.5), Processor("little")), (Job("7", partition, -1.5, 40.25), Job("9", partition, 0.0))
    )
    facts = {
        "policy": "least-slack",
        "problem": problem,
        "plan": DISPATCH_POLICIES["least-slack"]().plan(problem),
        "application": "museum/sound",
        "concerned": (("museum/sound", "harbour"),),
    }
    await stored(stand, "dispatch", facts)
    admin = await stand.client().get("/v1/decisions", params={"limit": 1, "kind": "dispatch"})
    (shown,) = admin.json()["items"]
    (again,) = replayed(admin.text)
    assert {**shown["answer"], "elapsed_ms": again["elapsed_ms"]} == {"outcome": "run", "actions": [], **again}
    assert shown["answer"]["decision"]["processor"] == "little"
    (item,) = await listed(stand.client("harbour"), kind="dispatch", limit=1)
    assert "museum" not in json.dumps(item)
    assert (item["application"], item["is_whole"]) == ("-/sound", True)
    assert await listed(stand.client("museum"), kind="dispatch") == []
