"""Pipelines over HTTP: how they are defined, who may see and call them, and what cannot be."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from appliance.demo.zoo import toys
from appliance.domain.catalogue import TaskKind, TaskSpec
from appliance.domain.jobs import ImportRequest
from appliance.domain.pipeline import CLIENTS_MAX, Ask, PipelineClient
from tests.api.stand import Stand, good, refusal

pytestmark = pytest.mark.anyio

ASK = {"name": "what", "application": "digits"}
ONE = {"name": "one", "latency_slo_ms": 500, "stages": [ASK]}
FIND = {"name": "find", "application": "find"}
LINES = {"name": "lines", "do": "crop", "after": ["find"], "of": "regions", "where": {"score_min": 0.6}, "at_most": 16}
SIDE = {"name": "side", "application": "digits", "after": ["lines"]}
READ = {"name": "read", "application": "read", "after": ["lines"], "when": {"stage": "side", "label_not": "180"}}
SIGNS = {"name": "signs", "latency_slo_ms": 600, "stages": [FIND, LINES, SIDE, READ]}
DEFAULTS: dict[str, Any] = {"after": [], "when": None, "at_most": 64, "on_error": "skip"}
ASK_DEFAULTS = {**DEFAULTS, "variant": None, "accuracy_min": None, "stateful": False}


@pytest.fixture
async def harbour(stand: Stand) -> httpx.AsyncClient:
    """harbour's client, once it has the pipeline `one`."""
    client = stand.client("harbour")
    await good(client.post("/v1/pipelines", json=ONE))
    return client


@pytest.fixture
async def with_text(stand: Stand) -> httpx.AsyncClient:
    """harbour's client, once it has applications that are said to find and to read text; none is asked here."""
    store, client = (await stand.appliance.management.get())[0].box.store, stand.client("harbour")
    digits = await store.models.get("harbour/digits")
    for name, kind in (("find", TaskKind.TEXT_DETECTION), ("read", TaskKind.TEXT_RECOGNITION)):
        await store.imports.accept(f"job-{name}", ImportRequest("harbour", name, "unused"))
        await store.models.update(f"harbour/{name}", task=replace(digits.task, kind=kind))
        assert (await client.get(f"/v1/applications/{name}")).json()["task"] == kind
    return client


async def defined_in_vain(stand: Stand, who: str, order: dict[str, Any], **request: Any) -> None:
    """Define a pipeline while an application `soon` of harbour is being imported; the import brings nothing."""
    store = (await stand.appliance.management.get())[0].box.store
    await store.imports.accept("job-soon", ImportRequest("harbour", "soon", "unused", **request))
    await good(stand.client(who).post("/v1/pipelines", json=order))
    await store.imports.withdraw("job-soon", "it brought nothing")


async def test_pipeline_is_created_changed_shown_and_deleted(with_text: httpx.AsyncClient) -> None:
    """It is shown as it was posted, with what is left out filled in; changed field by field; and gone."""
    harbour = with_text
    made = await good(harbour.post("/v1/pipelines", json=SIGNS))
    when = {"stage": "side", "label": None, "label_not": "180", "score_min": 0.0}
    where = {"score_min": 0.6, "label": None, "label_not": None, "size_min": 0.0}
    assert made == {
        "name": "signs",
        "tenant": "harbour",
        "latency_slo_ms": 600.0,
        "cost_by": "seconds",
        "weight": 1.0,
        "fastest_ms": None,  # two of the networks are not measured
        "takes": "picture",
        "stages": [
            {**ASK_DEFAULTS, **FIND},
            {**DEFAULTS, **LINES, "where": where},
            {**ASK_DEFAULTS, **SIDE},
            {**ASK_DEFAULTS, **READ, "when": when},
        ],
    }
    shown = (await harbour.get("/v1/pipelines/signs")).json()
    assert {key: shown[key] for key in made} == made
    assert shown["clients"] == []
    assert shown["plan"] is None or shown["plan"]["stages"] == []
    (row,) = (await harbour.get("/v1/pipelines")).json()["items"]
    assert row.items() >= made.items()
    assert (row["rate_fps"], row["in_time"], row["cost_per_frame"]["seconds"]) == (0.0, None, 0.0)
    changed = await harbour.patch("/v1/pipelines/signs", json={"latency_slo_ms": 700})
    assert changed.json() == made | {"latency_slo_ms": 700.0}
    changed = await harbour.patch("/v1/pipelines/signs", json={"stages": [ASK], "cost_by": "price", "weight": 3})
    assert [stage["name"] for stage in changed.json()["stages"]] == ["what"]
    assert changed.json()["fastest_ms"] > 0
    again = {key: changed.json()[key] for key in ("latency_slo_ms", "stages", "cost_by", "weight")}
    assert (await harbour.post("/v1/pipelines", json={"name": "copy", **again})).status_code == 201
    assert (await harbour.delete("/v1/pipelines/signs")).json() == {"deleted": "signs"}
    assert (await harbour.get("/v1/pipelines/signs")).status_code == 404


def changed(at: int, **fields: Any) -> dict[str, Any]:
    """`SIGNS` with one stage another way."""
    stages = [dict(stage) for stage in (FIND, LINES, SIDE, READ)]
    stages[at] |= fields
    return {**SIGNS, "stages": stages}


@pytest.mark.parametrize(
    ("order", "status", "kind", "key"),
    [
        (changed(0, after=["read"]), 422, "pipeline-cycle", "stages[0].after"),
        (changed(1, after=["fnid"]), 422, "unknown-stage", "stages[1].after"),
        (changed(3, when={"stage": "sdie"}), 422, "unknown-stage", "stages[3].when"),
        (changed(0, application="nobody"), 404, "unknown-application", None),
        (changed(2, variant="int9"), 404, "unknown-variant", None),
        (changed(1, of="objects"), 422, "stage-mismatch", "stages[1].of"),
        (changed(1, at_most=65), 422, "too-many-stages", "stages[1].at_most"),
        ({**ONE, "stages": [{**ASK, "name": f"s{at}"} for at in range(17)]}, 422, "too-many-stages", "stages"),
        ({**ONE, "latency_slo_ms": 0.0001}, 422, "slo-too-small", "latency_slo_ms"),
        ({**ONE, "name": "a/b"}, 422, "bad-name", None),
        ({**ONE, "name": "Größe"}, 422, "bad-name", None),
        ({**ONE, "stages": [ASK, ASK]}, 422, "bad-name", "stages[1].name"),
        ({**ONE, "stages": [{**ASK, "name": "a/b"}]}, 422, "bad-name", "stages[0].name"),
        ({**ONE, "stages": []}, 422, "invalid-request", None),
        ({**ONE, "latency_slo_ms": 1e308}, 422, "invalid-request", None),
        ({**ONE, "weight": -1}, 422, "invalid-request", None),
        ({**ONE, "stages": [{**ASK, "at_most": 0}]}, 422, "invalid-request", None),
        ({**ONE, "stages": [{**ASK, "do": "crop"}]}, 422, "invalid-request", None),
        ({**ONE, "stages": [{**ASK, "do": "exec"}]}, 422, "invalid-request", None),
        ({**ONE, "stages": [{**ASK, "do": ["x" * 100_000]}]}, 422, "invalid-request", None),
        ({**ONE, "stages": ["what"]}, 422, "invalid-request", None),
        ({**ONE, "stages": [{**ASK, "after": ["x"] * 65}]}, 422, "invalid-request", None),
        ({**ONE, "stages": [{**ASK, "name": "x" * 1000}]}, 422, "invalid-request", None),
        ({**ONE, "stages": {"what": ASK}}, 422, "invalid-request", None),
        (changed(1, where={"score_min": 2}), 422, "invalid-request", None),
    ],
)
async def test_pipeline_order_that_is_wrong_is_refused_with_its_problem(
    with_text: httpx.AsyncClient, order: dict[str, Any], status: int, kind: str, key: str | None
) -> None:
    """And with the key where there is one; nothing is made."""
    answer = await with_text.post("/v1/pipelines", json=order)
    assert (*refusal(answer), answer.json().get("key")) == (status, kind, key), answer.text
    assert (await with_text.get("/v1/pipelines")).json()["items"] == []
    assert (await with_text.post("/v1/pipelines", json=ONE)).status_code == 201
    if "stages" in order and order["stages"] != [ASK]:
        changed = await with_text.patch("/v1/pipelines/one", json={"stages": order["stages"]})
        assert refusal(changed) == (status, kind), changed.text


async def test_pipeline_slo_below_the_fastest_is_refused_with_the_sum(stand: Stand) -> None:
    """By the profiles that are there, with the stages of the longest path."""
    harbour = stand.client("harbour")
    order = {**ONE, "stages": [ASK, {**ASK, "name": "again", "after": ["what"]}]}
    made = (await harbour.post("/v1/pipelines", json=order)).json()
    refused = (await harbour.patch("/v1/pipelines/one", json={"latency_slo_ms": made["fastest_ms"] / 2})).json()
    assert refused["type"] == "/problems/slo-too-small"
    assert [part.split()[0] for part in refused["path"]] == ["what", "again"]
    assert refused["needs_ms"] == made["fastest_ms"]
    assert refused["detail"].startswith("latency_slo_ms: what ")
    assert " ms > " in refused["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"name": "one", "latency_slo_ms": 500, "stages": [' + b"{}," * 64_000 + b"{}]}",
        json.dumps({**ONE, "stages": [{**ASK, "after": [f"s{at}" for at in range(64_000)]}]}).encode(),
        b'{"name": "one", "stages": "' + b"x" * 10_000_000 + b'"}',
    ],
    ids=["64k stages", "64k names", "10 MB"],
)
async def test_pipeline_definition_that_is_hostile_is_refused_shortly(stand: Stand, body: bytes) -> None:
    """And the next request is served."""
    harbour = stand.client("harbour")
    answer = await harbour.post("/v1/pipelines", content=body, headers={"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500, answer.text
    assert len(answer.content) < 10_000
    assert (await harbour.post("/v1/pipelines", json=ONE)).status_code == 201


async def test_pipeline_routes_document_their_quota_and_storage_problems(stand: Stand) -> None:
    """A tenant's last pipeline, and a full disk, too."""
    paths = (await stand.client().get("/openapi.json")).json()["paths"]
    for path, method, status, kind in (
        ("/v1/pipelines", "post", "429", "quota-exceeded"),
        ("/v1/pipelines", "post", "507", "storage-full"),
        ("/v1/pipelines/{pipeline}", "patch", "507", "storage-full"),
    ):
        assert kind in json.dumps(paths[path][method]["responses"].get(status)), (path, method, kind)


async def test_application_used_by_a_pipeline_is_not_deleted(harbour: httpx.AsyncClient) -> None:
    """Neither is its model, and another task behind it is refused; with the pipelines' names."""
    for attempt in (
        harbour.delete("/v1/applications/digits"),
        harbour.delete("/v1/models/digits"),
        harbour.patch("/v1/applications/digits", json={"model": "adding"}),
    ):
        refused = await attempt
        assert refusal(refused) == (409, "application-in-use"), refused.text
        assert refused.json()["pipelines"] == ["one"]
    assert (await harbour.patch("/v1/applications/digits", json={"weight": 2})).status_code == 200
    await harbour.delete("/v1/pipelines/one")
    assert (await harbour.delete("/v1/applications/digits")).status_code == 200


async def test_shared_application_used_by_another_tenants_pipeline_is_kept(stand: Stand) -> None:
    """Its owner is told how many pipelines use it, not whose they are, and can neither delete nor unshare it."""
    museum, admin = stand.client("museum"), stand.client()
    order = {**ONE, "stages": [{"name": "add", "application": "adding"}]}
    assert (await museum.post("/v1/pipelines", json=order)).json()["takes"] == "tensor"
    for attempt in (
        admin.delete("/v1/applications/adding"),
        admin.patch("/v1/applications/adding", json={"shared": False}),
    ):
        refused = await attempt
        assert refused.status_code == 409
        assert (refused.json()["pipelines"], refused.json()["others"]) == ([], 1)
        assert "museum" not in refused.text
    assert (await admin.delete("/v1/tenants/museum")).status_code == 200
    assert (await admin.patch("/v1/applications/adding", json={"shared": False})).status_code == 200


async def test_pipeline_stage_asks_no_private_application_of_a_shared_name(stand: Stand, digits: toys.Digits) -> None:
    """What a pipeline was defined with goes with its import; what its owner makes of that name later is private, and
    may be deleted.
    """
    picture = next(digits.evaluation.glob("*.png")).read_bytes()
    harbour, museum = stand.client("harbour"), stand.client("museum")
    order = {**ONE, "stages": [{"name": "what", "application": "soon"}]}
    await defined_in_vain(stand, "museum", order, shared=True)
    for _ in range(2):
        assert (await harbour.post("/v1/applications", json={"name": "soon", "model": "digits"})).status_code == 201
        assert (await harbour.post("/v1/applications/soon/predict", content=picture)).status_code == 200
        assert refusal(await museum.post("/v1/pipelines/one/predict", content=picture)) == (409, "model-unavailable")
        shown = (await museum.get("/v1/pipelines/one")).json()
        assert (shown["takes"], shown["fastest_ms"]) == ("any", None)
        assert (await harbour.delete("/v1/applications/soon")).status_code == 200
    shared = {"name": "soon", "model": "digits", "shared": True}
    assert (await harbour.post("/v1/applications", json=shared)).status_code == 201
    assert (await museum.post("/v1/pipelines/one/predict", content=picture)).status_code == 200
    refused = await harbour.patch("/v1/applications/soon", json={"shared": False})
    assert refusal(refused) == (409, "application-in-use")


@pytest.mark.parametrize("first", ["what", "soon"])
async def test_pipeline_stage_without_its_application_leaves_others_answered(
    stand: Stand, digits: toys.Digits, first: str
) -> None:
    """The item of the stage says `error`; whether it is the first or not, and although the others share one picture."""
    picture = next(digits.evaluation.glob("*.png")).read_bytes()
    stages = [ASK, {**ASK, "name": "again"}, {"name": "soon", "application": "soon"}]
    order = {**ONE, "latency_slo_ms": 60_000, "stages": stages if first == "what" else stages[::-1]}
    await defined_in_vain(stand, "harbour", order, task=TaskSpec(TaskKind.IMAGE_CLASSIFICATION))
    answer = await good(stand.client("harbour").post("/v1/pipelines/one/predict", content=picture))
    assert {item["stage"]: item.get("none") for item in answer["items"]} == {
        "what": None,
        "again": None,
        "soon": "error",
    }


async def test_pipeline_stage_keeps_its_application_when_sent_anew(stand: Stand) -> None:
    """Also where the tenant has an own application of that name; a new stage asks that."""
    museum = stand.client("museum")
    add = {"name": "add", "application": "adding"}
    await museum.post("/v1/pipelines", json={**ONE, "stages": [add]})
    await good(museum.post("/v1/applications", json={"name": "adding", "model": "adding"}))
    stages = [add, {**add, "name": "more", "after": ["add"]}]
    assert (await museum.patch("/v1/pipelines/one", json={"weight": 2, "stages": stages})).status_code == 200
    pipeline = stand.appliance.running().pipelines.get("museum/one").pipeline
    assert [stage.application_id for stage in pipeline.stages if isinstance(stage, Ask)] == [
        "default/adding",
        "museum/adding",
    ]


async def test_concurrent_pipeline_changes_are_all_kept(harbour: httpx.AsyncClient) -> None:
    """Each changes what it names; what all of them make is a pipeline that can be run."""
    changes = [{"weight": 7}, {"latency_slo_ms": 777}, {"cost_by": "price"}, {"stages": [ASK, {**ASK, "name": "two"}]}]
    answers = await asyncio.gather(*(harbour.patch("/v1/pipelines/one", json=change) for change in changes))
    assert [one.status_code for one in answers] == [200] * 4
    shown = (await harbour.get("/v1/pipelines/one")).json()
    assert (shown["weight"], shown["latency_slo_ms"], shown["cost_by"]) == (7, 777, "price")
    assert len(shown["stages"]) == 2


async def test_pipeline_of_another_tenant_answers_like_an_unknown_pipeline(
    stand: Stand, harbour: httpx.AsyncClient
) -> None:
    """To every call; and a tenant may have its own of that name."""
    museum = stand.client("museum")
    client = (await harbour.post("/v1/pipelines/one/clients", json={"fps": 5})).json()["id"]
    for method, path, body in (
        ("GET", "", None),
        ("PATCH", "", {"weight": 2}),
        ("DELETE", "", None),
        ("POST", "/clients", {"fps": 5}),
        ("DELETE", f"/clients/{client}", None),
        ("POST", "/predict", {"texts": []}),
        ("POST", "/predict?wait=false", {"texts": []}),
    ):
        answers = []
        for name in ("one", "nothing-like-it"):
            answer = await museum.request(method, f"/v1/pipelines/{name}{path}", json=body)
            answers.append((answer.status_code, answer.text.replace(name, "NAME")))
        assert answers[0] == answers[1]
        assert answers[0][0] == 404
        assert "/problems/unknown-pipeline" in answers[0][1]
    assert (await museum.get("/v1/pipelines")).json()["items"] == []
    assert (await museum.post("/v1/pipelines", json=ONE)).json()["type"] == "/problems/unknown-application"
    own = {**ONE, "stages": [{"name": "add", "application": "adding"}]}
    assert (await museum.post("/v1/pipelines", json=own)).status_code == 201
    assert (await harbour.get("/v1/pipelines/one")).json()["stages"][0]["application"] == "digits"


async def test_device_keys_call_only_their_named_pipelines(stand: Stand, harbour: httpx.AsyncClient) -> None:
    """A key that names none calls all; a key that names some calls these only, and none of the applications behind
    them.
    """
    assert (await harbour.post("/v1/pipelines", json={**ONE, "name": "two"})).status_code == 201
    order = {"role": "device", "pipelines": ["one"]}
    made = (await harbour.post("/v1/tenants/harbour/keys", json=order)).json()
    assert made["pipelines"] == ["one"]
    bound, device, probe = stand.client(key=made["key"]), stand.client("device"), stand.client("probe")

    async def names(who: Any) -> list[str]:
        return [one["name"] for one in (await who.get("/v1/pipelines")).json()["items"]]

    assert (await names(bound), await names(device), await names(probe)) == (["one"], [], ["one", "two"])
    assert (await bound.get("/v1/applications")).json()["items"] == []
    assert (await bound.get("/v1/applications/digits")).status_code == 404
    assert (await bound.get("/v1/pipelines/two")).status_code == 404
    assert (await device.post("/v1/pipelines/one/clients", json={"fps": 1})).status_code == 404
    assert (await bound.post("/v1/pipelines/one/clients", json={"fps": 1})).status_code == 201
    assert [len((await who.get("/v1/pipelines/one")).json()["clients"]) for who in (harbour, bound)] == [1, 0]
    for method, path, body in (("POST", "", ONE), ("PATCH", "/one", {"weight": 2}), ("DELETE", "/one", None)):
        assert (await bound.request(method, f"/v1/pipelines{path}", json=body)).status_code == 403
    nobody = await harbour.post("/v1/tenants/harbour/keys", json={"role": "device", "pipelines": ["none"]})
    assert refusal(nobody) == (404, "unknown-pipeline")
    other = await harbour.post("/v1/tenants/harbour/keys", json={"pipelines": ["one"]})
    assert other.json()["type"] == "/problems/bad-metadata"


async def test_pipeline_clients_join_and_leave(harbour: httpx.AsyncClient) -> None:
    """Each with an id of its own, shown with its rate; a frame of a client that has left is refused."""
    made = [(await harbour.post("/v1/pipelines/one/clients", json={"fps": fps})).json() for fps in (5, 0.5)]
    assert [one["fps"] for one in made] == [5.0, 0.5]
    assert (await harbour.get("/v1/pipelines/one")).json()["clients"] == made
    gone = made[0]["id"]
    assert (await harbour.delete(f"/v1/pipelines/one/clients/{gone}")).json() == {"deleted": gone}
    for answer in (
        await harbour.delete(f"/v1/pipelines/one/clients/{gone}"),
        await harbour.post("/v1/pipelines/one/predict", content=b"x", headers={"X-Client": gone}),
    ):
        assert refusal(answer) == (404, "unknown-client")
    for fps in (0, -1, 1e308, "5", True):
        assert (await harbour.post("/v1/pipelines/one/clients", json={"fps": fps})).status_code == 422


async def test_pipeline_client_above_the_bound_is_refused(stand: Stand, harbour: httpx.AsyncClient) -> None:
    """Until another leaves."""
    box = stand.appliance.running()
    live = box.pipelines.get("harbour/one")
    for at in range(CLIENTS_MAX):
        live.clients.join(PipelineClient(f"c{at}", live.pipeline.id, 0.001), box.clock.now_ns())
    refused = await harbour.post("/v1/pipelines/one/clients", json={"fps": 1})
    assert refusal(refused) == (429, "too-many-sessions")
    assert "256 clients of pipeline 'one'" in refused.json()["detail"]
    live.clients.leave("c0")
    answers = await asyncio.gather(*(harbour.post("/v1/pipelines/one/clients", json={"fps": 0.01}) for _ in range(4)))
    assert sorted(one.status_code for one in answers) == [201, 429, 429, 429]


async def test_pipeline_changes_give_events_and_audit_entries(stand: Stand, harbour: httpx.AsyncClient) -> None:
    """An event for the tenant, and a row of the audit with what was sent."""
    await harbour.delete("/v1/pipelines/one")
    seen = [(e.event, e.tenant, e.facts["pipeline"]) for e in stand.appliance.running().telemetry.recent()
            if e.event.startswith("pipeline ")]  # fmt: skip
    assert seen == [("pipeline defined", "harbour", "one"), ("pipeline deleted", "harbour", "one")]
    rows = (await harbour.get("/v1/audit")).json()["items"][:2]
    assert [(row["action"], row["path"]) for row in rows] == [
        ("Delete a pipeline", "/v1/pipelines/one"),
        ("Define a pipeline", "/v1/pipelines"),
    ]
    assert rows[1]["change"] == ONE
    assert rows[1]["subject"] == "one"
