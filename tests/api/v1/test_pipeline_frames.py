"""Frames over HTTP: plates are found on a page, cut out, and the numerals on them read."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.api import wall
from appliance.domain.session import FrameEnd
from appliance.domain.states import JobState
from tests import plates
from tests.api.stand import FurnishedWith, Stand, copied, good, imported, made_key, refusal, request_end
from tests.api.streams.device import opened
from tests.e2e.server import running_server

pytestmark = pytest.mark.anyio

PLATES: dict[str, Any] = {
    "name": "plates",
    "latency_slo_ms": 60_000,
    "stages": [
        {"name": "find", "application": "plates"},
        {"name": "cut", "do": "crop", "after": ["find"], "of": "regions"},
        {"name": "read", "application": "digits", "after": ["cut"]},
    ],
}
PREDICT = "/v1/pipelines/plates/predict"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> plates.Pages:
    return plates.plates(tmp_path_factory.mktemp("pages"), count=6)


@pytest.fixture(scope="module")
def furnished_state(furnished_with: FurnishedWith, pages: plates.Pages) -> Path:
    """A state folder in which harbour has the network and the pipeline."""

    async def define(stand: Stand) -> None:
        harbour, metadata = stand.client("harbour"), pages.metadata.read_text()
        job = await imported(harbour, "plates", pages.model.read_bytes(), "text-detection", metadata=metadata)
        assert job["state"] == JobState.DONE
        await good(harbour.post("/v1/pipelines", json=PLATES))

    return furnished_with(define)


def samples(pages: plates.Pages) -> list[tuple[bytes, str, list[Any]]]:
    """Pages with their numerals and the corners of their plates, from left to right."""
    truth = json.loads((pages.evaluation / "truth.json").read_text())["samples"]
    return [
        ((pages.evaluation / one["file"]).read_bytes(), one["numerals"], [region["quad"] for region in one["regions"]])
        for one in truth
    ]


def labels(frame: dict[str, Any]) -> str:
    """What was read, from left to right."""
    (found,) = frame["items"]
    cuts = sorted(found["items"], key=lambda cut: cut["quad"][0][0])
    return "".join(cut["items"][0]["answer"]["labels"][0]["label"] for cut in cuts)


@pytest.mark.nightly("a reader of text, imported anew")
async def test_pipeline_frame_finds_cuts_and_reads_the_numerals_of_a_page(stand: Stand, pages: plates.Pages) -> None:
    """Nearly every numeral, where it stands; each answer says which variant gave it, where the time went and what it
    cost.
    """
    harbour = stand.client("harbour")
    right = count = 0
    for content, numerals, quads in samples(pages):
        answer = await good(harbour.post(PREDICT, content=content))
        frame = answer
        assert (frame["pipeline"], frame["in_time"]) == ("plates", True)
        assert set(frame["timings_ms"]) == {"find", "cut", "read"}
        assert frame["cost"]["seconds"] > 0
        (found,) = frame["items"]
        assert (found["stage"], found["variant"]) == ("find", "fp32")
        cuts = sorted(found["items"], key=lambda cut: cut["quad"][0][0])
        assert [(cut["stage"], [one["stage"] for one in cut["items"]]) for cut in cuts] == [("cut", ["read"])] * len(
            quads
        )
        for cut, quad in zip(cuts, quads, strict=True):
            assert all(abs(x - a) < 8 and abs(y - b) < 8 for (x, y), (a, b) in zip(cut["quad"], quad, strict=True))
        read = labels(frame)
        right += sum(a == b for a, b in zip(read, numerals, strict=True))
        count += len(numerals)
    assert right / count >= 0.7
    (row,) = (await harbour.get("/v1/pipelines")).json()["items"]
    assert row["in_time"] == 1.0
    assert row["cost_per_frame"]["seconds"] > 0
    shown = (await harbour.get("/v1/pipelines/plates")).json()
    assert shown["frames"]["answered"] == shown["frames"]["in_time"] == len(samples(pages))
    assert shown["figures"]["read"]["items"] == count
    assert shown["fastest_ms"] > 0


async def test_pipeline_frame_without_waiting_is_fetched_later(stand: Stand, pages: plates.Pages) -> None:
    """202 with an id; what comes of it is the frame, or its problem. A device key fetches what it may call."""
    harbour = stand.client("harbour")
    content, *_ = samples(pages)[0]
    at_once = (await harbour.post(PREDICT, content=content)).json()
    later = await harbour.post(f"{PREDICT}?wait=false", content=content)
    assert later.status_code == 202
    location = later.headers["location"]
    told = await request_end(harbour, location)
    assert labels(told["result"]) == labels(at_once)
    assert (await (await bound(stand)).get(location)).status_code == 200
    assert (await stand.client("device").get(location)).status_code == 404
    assert (await stand.client("museum").get(location)).status_code == 404
    broken = await harbour.post(f"{PREDICT}?wait=false", content=b"no picture")
    assert (await request_end(harbour, broken.headers["location"]))["problem"]["type"] == "/problems/bad-media"
    assert stand.appliance.running().in_flight.bytes == 0


async def test_pipeline_frame_takes_client_and_frame_number_headers(stand: Stand, pages: plates.Pages) -> None:
    """`X-Client` of a client that has joined, and `X-Frame`; a number that is none is refused."""
    harbour = stand.client("harbour")
    content, *_ = samples(pages)[0]
    client = (await harbour.post("/v1/pipelines/plates/clients", json={"fps": 5})).json()["id"]
    good = {"X-Client": client, "X-Frame": "7"}
    assert (await harbour.post(PREDICT, content=content, headers=good)).status_code == 200
    for wrong in ("-1", "x", "1e3", "9" * 30):
        refused = await harbour.post(PREDICT, content=content, headers={"X-Frame": wrong})
        assert refusal(refused) == (422, "invalid-request")


async def test_frame_of_a_pipelines_client_is_on_the_live_wall_until_the_client_leaves(
    stand: Stand, pages: plates.Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame of nobody who joined belongs to no stream."""
    monkeypatch.setattr(wall, "LOOK_S", 600.0)  # a busy machine takes long for a frame
    harbour = stand.client("harbour")
    content, *_ = samples(pages)[0]
    client = (await harbour.post("/v1/pipelines/plates/clients", json={"fps": 5})).json()["id"]
    await good(harbour.put("/v1/wall/viewers", json={"viewers": "tenant"}))
    await good(harbour.get("/v1/wall"))
    await good(harbour.post(PREDICT, content=content))
    answer = await good(harbour.post(PREDICT, content=content, headers={"X-Client": client, "X-Frame": "7"}))
    (shown,) = (await good(harbour.get("/v1/wall")))["streams"]
    assert (shown["stream"], shown["pipeline"], shown["frame"]) == (client, "plates", 7)
    assert shown["answer"]["items"] == answer["items"]
    assert (await harbour.get(f"/v1/wall/{client}/frame")).content == content
    await good(harbour.delete(f"/v1/pipelines/plates/clients/{client}"))
    assert (await good(harbour.get("/v1/wall")))["streams"] == []
    await good(harbour.delete("/v1/wall"))


@pytest.mark.parametrize(
    ("content", "query", "status", "kind"),
    [
        (b"", "", 422, "bad-media"),
        (b"not a picture", "", 422, "bad-media"),
        (b"\x89PNG\r\n\x1a\n....", "", 422, "bad-media"),
        (b"x", "?timeout_ms=nan", 422, "invalid-request"),
        (b"x", "?timeout_ms=0", 422, "invalid-request"),
        (b"x", "?wait=perhaps", 422, "invalid-request"),
    ],
)
async def test_pipeline_frame_that_is_wrong_is_the_callers_mistake(
    stand: Stand, content: bytes, query: str, status: int, kind: str
) -> None:
    """As of `predict`; nothing stays in memory."""
    harbour = stand.client("harbour")
    assert refusal(await harbour.post(PREDICT + query, content=content)) == (status, kind)
    assert stand.appliance.running().in_flight.bytes == 0


async def test_pipeline_frame_with_a_deleted_variant_has_error_items(stand: Stand, pages: plates.Pages) -> None:
    """Items of the stage that names it say `error`; the pipeline is still shown."""
    harbour = stand.client("harbour")
    content, numerals, _ = samples(pages)[0]
    named = [dict(stage) for stage in PLATES["stages"]]
    named[2]["variant"] = "fp32"
    assert (await harbour.patch("/v1/pipelines/plates", json={"stages": named})).status_code == 200
    assert len(labels((await harbour.post(PREDICT, content=content)).json())) == len(numerals)
    assert (await harbour.delete("/v1/models/digits/variants/fp32")).status_code == 200
    (found,) = (await harbour.post(PREDICT, content=content)).json()["items"]
    assert [cut["items"][0]["none"] for cut in found["items"]] == ["error"] * len(numerals)
    assert (await harbour.get("/v1/pipelines/plates")).json()["fastest_ms"] is None
    assert (await harbour.patch("/v1/pipelines/plates", json={"weight": 2})).status_code == 200
    refused = await harbour.patch("/v1/pipelines/plates", json={"latency_slo_ms": 50_000})
    assert refusal(refused) == (404, "unknown-variant")
    stages = [named[2] | {"after": []}]
    assert (await harbour.patch("/v1/pipelines/plates", json={"stages": stages})).status_code == 404


async def test_pipeline_change_holds_from_the_next_frame_on(stand: Stand, pages: plates.Pages) -> None:
    """Also while frames are under way: each is answered by the old definition or by the new one; and a deletion ends
    none.
    """
    harbour = stand.client("harbour")
    content, numerals, _ = samples(pages)[0]
    asked = [asyncio.create_task(harbour.post(PREDICT, content=content)) for _ in range(8)]
    await asked[0]
    await good(harbour.patch("/v1/pipelines/plates", json={"stages": PLATES["stages"][:1]}))
    (found,) = (await harbour.post(PREDICT, content=content)).json()["items"]
    assert found["items"] == []
    for answer in await asyncio.gather(*asked):
        assert answer.status_code == 200
        assert len(answer.json()["items"][0]["items"]) in (0, len(numerals))
    last = asyncio.create_task(harbour.post(PREDICT, content=content))
    assert (await harbour.delete("/v1/pipelines/plates")).status_code == 200
    assert (await last).status_code in (200, 404)
    assert (await harbour.post(PREDICT, content=content)).status_code == 404


SESSION: dict[str, Any] = {
    "pipeline": "plates",
    "name": "cam",
    "fps": 10,
    "promise": {"kind": "latency", "slo_ms": 30_000, "rate_rps": 5},
}


def numbered(frame: int) -> dict[str, str]:
    return {"X-Frame": str(frame), "X-Capture-Age-Ms": "5"}


async def bound(stand: Stand) -> httpx.AsyncClient:
    """A device whose key may call the pipeline, and no application."""
    key = await made_key(stand.client("harbour"), "harbour", role="device", pipelines=["plates"])
    return stand.client(key=key)


async def test_pipeline_session_is_a_client_and_answers_as_predict(stand: Stand, pages: plates.Pages) -> None:
    """A device joins, posts frames, and gets what `predict` answers, with what to send next; each frame counts once, in
    the session and in the pipeline, whose client the session is until it leaves.
    """
    device, harbour = await bound(stand), stand.client("harbour")
    joined = await good(device.post("/v1/sessions", json=SESSION))
    session = joined
    assert (session["pipeline"], session["application"], session["state"]) == ("plates", None, "served")
    assert (session["plan"]["variant"], session["plan"]["interval"]) == ("", 2)
    stages = {one["stage"]: one for one in session["plan"]["stages"]}
    assert stages.keys() == {stage["name"] for stage in PLATES["stages"] if "application" in stage}
    assert all(one["variant"] and 0.0 < one["accuracy"] <= 1.0 for one in stages.values())
    assert 96 <= session["plan"]["size"] <= 1920
    shown = (await harbour.get("/v1/pipelines/plates")).json()
    assert shown["clients"] == [{"id": session["id"], "fps": 5.0}]
    content, numerals, _ = samples(pages)[0]
    path = f"/v1/sessions/{session['id']}"
    for frame in (0, 2):
        answer = await device.post(f"{path}/frames", content=content, headers=numbered(frame))
        assert answer.status_code == 200, answer.text
        assert len(labels(answer.json())) == len(numerals)
        assert f"next={frame + 2}" in answer.headers["session-plan"]
        assert "variant" not in answer.headers["session-plan"]
    again = await device.post(f"{path}/frames", content=content, headers=numbered(2))
    assert again.json() == answer.json()
    named = numbered(4) | {"X-Session": session["id"]}
    answer = await device.post(PREDICT, content=content, headers=named)
    assert labels(answer.json()) == labels(again.json())
    broken = await device.post(f"{path}/frames", content=b"no picture", headers=numbered(6))
    assert refusal(broken) == (422, "bad-media")
    spoken = await device.post(PREDICT, content=content, headers={"X-Client": session["id"]})
    assert refusal(spoken) == (404, "unknown-client")
    elsewhere = await harbour.post("/v1/applications/digits/predict", content=content, headers=numbered(8) | named)
    assert elsewhere.status_code == 422
    counted = (await device.get(path)).json()
    assert (counted["sent"], counted["answered"], counted["drops"]) == (4, 3, {"bad-media": 1})
    assert (await device.get(f"{path}/plan")).status_code == 200
    changed = {"promise": {"kind": "latency", "slo_ms": 20_000, "rate_rps": 2}}
    assert (await device.patch(path, json=changed)).json()["promise"]["rate_rps"] == 2
    assert (await harbour.get("/v1/pipelines/plates")).json()["clients"] == [{"id": session["id"], "fps": 2.0}]
    assert (await device.delete(path)).status_code == 200
    assert (await harbour.get("/v1/pipelines/plates")).json()["clients"] == []


@pytest.mark.parametrize(
    ("order", "key"),
    [
        (SESSION | {"application": "digits"}, "pipeline"),
        ({name: value for name, value in SESSION.items() if name != "pipeline"}, "pipeline"),
        (SESSION | {"promise": {"kind": "accuracy", "drop_max": 0.1}}, "promise"),
        (SESSION | {"promise": SESSION["promise"] | {"accuracy_min": 0.5}}, "accuracy_min"),
    ],
)
async def test_pipeline_session_with_an_impossible_order_is_refused_by_key(
    stand: Stand, order: dict[str, Any], key: str
) -> None:
    answer = await stand.client("harbour").post("/v1/sessions", json=order)
    assert (answer.status_code, key in answer.text) == (422, True), answer.text


async def test_pipeline_session_needs_a_callable_pipeline_and_a_kept_promise(stand: Stand) -> None:
    """Another tenant's pipeline, and one that the key does not name, is unknown; a promise that the box cannot keep is
    refused with a good offer; a promise of accuracy is refused.
    """
    for who in ("museum", "device"):
        assert refusal(await stand.client(who).post("/v1/sessions", json=SESSION)) == (404, "unknown-pipeline")
    harbour = stand.client("harbour")
    hasty = SESSION | {"promise": {"kind": "latency", "slo_ms": 1, "rate_rps": 5}}
    refused = await harbour.post("/v1/sessions", json=hasty)
    assert refusal(refused) == (409, "promise-not-possible")
    assert refused.json()["cause"] in ("processor", "link")
    (offer,) = refused.json()["offers"]
    assert (await harbour.get("/v1/pipelines/plates")).json()["clients"] == []
    joined = await good(harbour.post("/v1/sessions", json=SESSION | {"promise": offer}))
    path = f"/v1/sessions/{joined['id']}"
    accurate = await harbour.patch(path, json={"promise": {"kind": "accuracy", "drop_max": 0.1}})
    assert (accurate.status_code, "latency only" in accurate.json()["detail"]) == (422, True)
    assert (await harbour.delete(f"/v1/pipelines/plates/clients/{joined['id']}")).status_code == 404
    assert (await harbour.delete("/v1/pipelines/plates")).status_code == 200
    answer = await harbour.post(f"{path}/frames", content=b"x", headers=numbered(0))
    assert answer.status_code in (404, 409)


async def test_pipeline_stream_answers_each_frame_as_predict(
    furnished_state: Path, furnished: tuple[Path, dict[str, str]], pages: plates.Pages, tmp_path: Path
) -> None:
    """On a real port: the plan, an acknowledgement and a result for each frame."""
    key = furnished[1]["harbour"]
    with running_server(copied(furnished_state, tmp_path / "state")) as server:
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=120) as client:
            joined = await good(client.post("/v1/sessions", json=SESSION))
            async with opened(server.url, key, joined["id"]) as device:
                plan = await device.until("plan")
                assert (plan.variant, plan.interval, plan.credit) == ("", 2, 2)
                await device.agree()
                for number, (content, _, _) in enumerate(samples(pages)[:4]):
                    result = await device.answered(2 * number, content)
                    assert result.outcome is FrameEnd.ANSWERED
                    expected = (await client.post(PREDICT, content=content)).json()
                    assert result.answer["pipeline"] == "plates"
                    assert labels(result.answer) == labels(expected)
                shown = (await client.get(f"/v1/sessions/{joined['id']}")).json()
    assert (shown["pipeline"], shown["sent"], shown["answered"]) == ("plates", 4, 4)
