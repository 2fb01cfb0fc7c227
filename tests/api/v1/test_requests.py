"""Requests that are answered later, over HTTP."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from appliance.demo.zoo import toys
from tests.api.stand import ANSWER_S, ROWS, Asking, Stand, StandWith, refusal, request_end
from tests.api.v1.digit_pictures import samples

pytestmark = pytest.mark.anyio

DIGITS = "/v1/applications/digits/predict?wait=false"
ADDING = "/v1/applications/adding/predict?wait=false"


@pytest.fixture
def picture(digits: toys.Digits) -> bytes:
    return samples(digits, 1)[0][0]


@contextmanager
def busy_media(stand: Stand) -> Iterator[None]:
    """All threads of media have something to do: what comes waits."""
    media, go = stand.appliance.running().media, threading.Event()
    busy = [asyncio.create_task(media.run("t/a", "t", None, go.wait)) for _ in range(64)]
    try:
        yield
    finally:
        go.set()
        for task in busy:
            task.cancel()


async def test_deferred_request_is_fetched_by_its_id(stand: Stand, picture: bytes) -> None:
    """202 with an id and its address; there is what `predict` answers, for every key of the tenant that may call."""
    device = stand.client("device", **{"X-Request-Id": "frame-17"})
    plain = (await device.post("/v1/applications/digits/predict", content=picture)).json()
    accepted = await device.post(DIGITS, content=picture)
    assert accepted.status_code == 202
    assert set(accepted.json()) == {"id", "state"}
    location = accepted.headers["location"]
    assert location == f"/v1/requests/{accepted.json()['id']}"
    assert accepted.json()["id"] != "frame-17"
    told = await request_end(device, location)
    assert (told["id"], told["state"]) == (accepted.json()["id"], "done")
    assert told["result"]["labels"] == plain["labels"]
    assert told["result"]["request_id"] == "frame-17"
    assert set(told["result"]) == set(plain)
    for who in ("device", "probe", "harbour"):
        assert (await stand.client(who).get(location)).json() == told


async def test_deferred_request_answers_other_callers_like_an_unknown_id(stand: Stand, picture: bytes) -> None:
    """Another tenant, a device that may not call the application, and an admin who acts in another tenant."""
    harbour = stand.client("harbour")
    order = {"name": "secret", "model": "digits"}
    assert (await harbour.post("/v1/applications", json=order)).status_code == 201
    accepted = await harbour.post("/v1/applications/secret/predict?wait=false", content=picture)
    id = accepted.json()["id"]
    await request_end(harbour, f"/v1/requests/{id}")
    for caller in (stand.client("museum"), stand.client("device"), stand.client("admin")):
        answers = []
        for name in (id, "0" * len(id)):
            answer = await caller.get(f"/v1/requests/{name}")
            answers.append((answer.status_code, answer.text.replace(name, "ID")))
        assert answers[0] == answers[1]
        assert (answers[0][0], json.loads(answers[0][1])["type"]) == (404, "/problems/unknown-request")
    assert (await stand.client("admin", **{"X-Tenant": "harbour"}).get(f"/v1/requests/{id}")).status_code == 200
    assert (await stand.client(None).get(f"/v1/requests/{id}")).status_code == 401


async def test_deferred_request_that_fails_later_has_its_problem(stand: Stand) -> None:
    """Bad media is found by decoding only, and comes as the problem document that `predict` would have answered."""
    device = stand.client("device")
    accepted = await device.post(DIGITS, content=b"no picture at all")
    assert accepted.status_code == 202
    told = await request_end(device, accepted.headers["location"])
    plain = (await device.post("/v1/applications/digits/predict", content=b"no picture at all")).json()
    assert told["state"] == "failed"
    assert told["problem"] == plain | {"instance": accepted.headers["location"]}
    assert "result" not in told


async def test_deferred_request_holds_its_body_and_quota_until_its_end(stand: Stand, picture: bytes) -> None:
    """The body counts in what is in flight and the call in the quota, long after the 202; its end gives both back."""
    assert (
        await stand.client().put("/v1/tenants/harbour", json={"quota": {"concurrent_requests": 1}})
    ).status_code == 200
    device, box = stand.client("device"), stand.appliance.running()
    with busy_media(stand):
        accepted = await device.post(DIGITS, content=picture)
        assert accepted.status_code == 202
        assert (await device.get(accepted.headers["location"])).json()["state"] == "waiting"
        assert box.in_flight.bytes == len(picture)
        assert refusal(await device.post("/v1/applications/digits/predict", content=picture)) == (429, "quota-exceeded")
        text = (await stand.client().get("/metrics")).text
        assert "appliance_requests_deferred 1.0" in text
    told = await request_end(device, accepted.headers["location"])
    assert told["state"] == "done"
    assert box.in_flight.bytes == 0
    assert (await device.post("/v1/applications/digits/predict", content=picture)).status_code == 200
    lines = (await stand.client().get("/metrics")).text.splitlines()
    assert {"appliance_requests_deferred 0.0", "appliance_results_kept 1.0"} <= set(lines)
    kept = next(line for line in lines if line.startswith("appliance_results_bytes "))
    assert float(kept.split()[1]) == len((await device.get(accepted.headers["location"])).content)


async def test_deferred_request_outlives_its_connection(stand: Stand) -> None:
    """Once the 202 is out the request goes on without its connection."""
    headers = {"Authorization": f"Bearer {stand.keys['museum']}", "Content-Type": "application/json"}
    body = json.dumps(ROWS).encode()
    headers["Content-Length"] = str(len(body))
    with busy_media(stand):
        path, _, query = ADDING.partition("?")
        async with Asking(stand.appliance.asgi, "POST", path, headers, iter([body]), query) as asking:
            assert await asking.status() == 202
            id = json.loads(await asking.piece())["id"]
    told = await request_end(stand.client("museum"), f"/v1/requests/{id}")
    assert told["result"]["outputs"]["SUM"]["data"] in ([11, 22, 33, 44], [[11, 22, 33, 44]])


async def test_deferred_request_of_a_revoked_key_goes_on_for_its_tenant(stand: Stand, picture: bytes) -> None:
    """The revoked key cannot fetch it."""
    harbour = stand.client("harbour")
    made = (await harbour.post("/v1/tenants/harbour/keys", json={"role": "device"})).json()
    lent = stand.client(key=made["key"])
    with busy_media(stand):
        location = (await lent.post(DIGITS, content=picture)).headers["location"]
        assert (await harbour.delete(f"/v1/tenants/harbour/keys/{made['id']}")).status_code in (200, 204)
    assert (await lent.get(location)).status_code == 401
    assert (await request_end(harbour, location))["state"] == "done"


async def test_deferred_requests_of_a_deleted_tenant_are_gone(stand: Stand) -> None:
    """A new tenant of the name finds neither what ran nor what was kept."""
    admin, museum = stand.client(), stand.client("museum")
    kept = (await museum.post(ADDING, json=ROWS)).headers["location"]
    await request_end(museum, kept)
    box = stand.appliance.running()
    with busy_media(stand):
        runs = (await museum.post(ADDING, json=ROWS)).headers["location"]
        assert (await admin.delete("/v1/tenants/museum")).status_code in (200, 204)
        assert (await admin.post("/v1/tenants", json={"name": "museum"})).status_code == 201
        anew = stand.client("admin", **{"X-Tenant": "museum"})
        for location in (kept, runs):
            assert (await anew.get(location)).status_code == 404
    await box.deferred.drain(ANSWER_S)
    assert (box.in_flight.bytes, box.deferred.results_bytes, box.deferred.kept) == (0, 0, 0)


async def test_deferred_request_is_finished_at_a_stop_and_then_forgotten(stand_with: StandWith, picture: bytes) -> None:
    """No new one begins meanwhile, and the next start does not know its id."""
    async with stand_with() as stand:
        device, deferred = stand.client("device"), stand.appliance.running().deferred
        with busy_media(stand):
            id = (await device.post(DIGITS, content=picture)).json()["id"]
            stand.appliance.begin_drain()
            assert refusal(await device.post(DIGITS, content=picture)) == (503, "shutting-down")
            assert deferred.under_way == 1
    assert json.loads(deferred.find("harbour", id).document())["state"] == "done"
    async with stand_with() as again:
        assert (await again.client("device").get(f"/v1/requests/{id}")).status_code == 404


async def test_deferred_result_without_room_fails_with_result_not_kept(stand_with: StandWith, picture: bytes) -> None:
    """`http.results_bytes_max` is the bound of all together."""
    async with stand_with(http={"results_bytes_max": 1024}) as stand:
        device = stand.client("device")
        locations = [(await device.post(DIGITS, content=picture)).headers["location"] for _ in range(4)]
        told = [await request_end(device, location) for location in locations]
    assert "done" in [one["state"] for one in told]
    assert "/problems/result-not-kept" in [one["problem"]["type"] for one in told if one["state"] == "failed"]
