"""Sessions over HTTP; how their frames end is told in `streams` and in `tests/runtime/sessions`."""

import asyncio
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.cli.decisions import BOXS_OWN, differences
from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.demo.zoo import toys
from appliance.domain.errors import FrameDropped, OutOfMemory
from appliance.domain.request import Request, Result
from appliance.domain.session import DropCause, FrameEnd, FrameHead
from appliance.domain.slots import PlannedBatch
from appliance.domain.states import SessionState
from appliance.lab.problems import adaptation, offload
from appliance.runtime.sessions import presence
from appliance.runtime.sessions.batches import Batches
from appliance.runtime.sessions.frame import PLANNED_PRIORITY, Frame, FrameResult
from appliance.runtime.sessions.live import LiveSession
from appliance.runtime.sessions.pools import key_of
from appliance.tasks.base import Media
from tests.api.stand import Stand, good, refusal, shown_when, stand_on
from tests.api.v1.digit_pictures import samples
from tests.api.v1.joining import LATENCY, joined, order
from tests.fakes.waiting import until

pytestmark = pytest.mark.anyio

ACCURACY = {"kind": "accuracy", "drop_max": 0.1}


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session is taken for silent because the machine is slow."""
    monkeypatch.setattr(presence, "SILENT_NS", 3600 * NS_PER_S)


def head(stand: Stand, number: int, body: bytes, **fields: Any) -> FrameHead:
    now_ns = stand.appliance.clock.now_ns()
    return FrameHead(number, now_ns, now_ns - 5_000_000, len(body), **fields)


async def answered(stand: Stand, live: LiveSession, number: int, body: bytes) -> FrameResult:
    """One frame, from its head to its result."""
    frame: Frame = stand.appliance.running().sessions.frame_begins(live, head(stand, number, body))
    frame.received(body)
    return await frame.answer(Media(body, "image/png"), f"frame-{number}")


async def test_session_is_joined_served_counted_and_left(stand: Stand, digits: toys.Digits) -> None:
    """Served with a plan; its frames are answered and counted once; at the end its counts are shown."""
    device = stand.client("device")
    live = await joined(stand, LATENCY)
    shown = (await device.get(f"/v1/sessions/{live.id}")).json()
    assert (shown["state"], shown["promise"]) == ("served", LATENCY | {"accuracy_min": None})
    assert shown["accuracy_meaning"] == "agreement with fp32"
    assert (shown["plan"]["variant"], shown["plan"]["interval"]) == ("fp32", 3)
    results = [
        await answered(stand, live, number * 3, picture) for number, (picture, _) in enumerate(samples(digits, 5))
    ]
    assert [result.end for result in results] == [FrameEnd.ANSWERED] * 5
    assert all(result.body and b'"labels"' in result.body for result in results)
    shown = (await device.get(f"/v1/sessions/{live.id}")).json()
    assert (shown["captured"], shown["sent"], shown["answered"]) == (5, 5, 5)
    figures = shown["figures"]
    assert (figures["miss_rate"], figures["batch_rows"], figures["mean_drop"]) == (0.0, 1.0, None)
    assert (figures["against_original"], figures["against_original_frames"]) == (1.0, 5)  # fp32 is the original
    assert 0.0 < figures["utilisation"] <= 1.0
    text = (await stand.client("harbour").get("/metrics")).text
    assert 'appliance_session_batch_rows{tenant="harbour"} 1.0' in text
    assert 'appliance_frames_total{end="answered",tenant="harbour"} 5.0' in text
    assert 'appliance_sessions{state="served",tenant="harbour"} 1.0' in text
    assert "appliance_frames_total{" not in (await stand.client("museum").get("/metrics")).text
    plan = (await device.get(f"/v1/sessions/{live.id}/plan")).json()
    assert plan["next"] == 15
    assert (await device.delete(f"/v1/sessions/{live.id}")).json() == {"deleted": live.id}
    ended = (await device.get(f"/v1/sessions/{live.id}")).json()
    assert (ended["state"], ended["answered"]) == ("ended", 5)
    assert (await device.get(f"/v1/sessions/{live.id}/plan")).status_code == 404


async def test_session_is_visible_to_its_device_key_and_its_tenant_only(stand: Stand) -> None:
    """A device's key sees its own sessions only; the tenant's key all of its own; to any other key a session is
    unknown.
    """
    live = await joined(stand, LATENCY)
    path = f"/v1/sessions/{live.id}"
    for who, status in (("device", 200), ("harbour", 200), ("probe", 404), ("museum", 404), ("admin", 404)):
        client = stand.client(who)
        assert (await client.get(path)).status_code == status, who
        listed = [one["id"] for one in (await client.get("/v1/sessions")).json()["items"]]
        assert listed == ([live.id] if status == 200 else []), who
        if status == 404:
            assert (await client.delete(path)).status_code == 404
            assert (await client.patch(path, json={"paused": True})).status_code == 404
            assert (await client.get(f"{path}/plan")).status_code == 404
    other = await stand.client("device").post("/v1/sessions", json=order(LATENCY, application="adding"))
    assert other.status_code == 404


async def test_session_promise_is_capped_at_the_frame_rate_of_the_camera(stand: Stand) -> None:
    """Neither at the beginning nor by a change; what is promised is shown."""
    device = stand.client("device")
    joined = await device.post("/v1/sessions", json=order(LATENCY | {"rate_rps": 1000}, fps=30))
    assert joined.json()["promise"]["rate_rps"] == 30
    path = f"/v1/sessions/{joined.json()['id']}"
    assert (await device.patch(path, json={"promise": LATENCY | {"rate_rps": 40}})).json()["promise"]["rate_rps"] == 30
    assert (await device.patch(path, json={"promise": LATENCY | {"rate_rps": 5}})).json()["promise"]["rate_rps"] == 5


@pytest.mark.parametrize("sign", ["\u202e", "\u2066", "\u2028", "\u2029", "\x85"])
async def test_session_name_with_bidi_or_line_separators_is_refused(stand: Stand, sign: str) -> None:
    """Such signs turn the direction of a line, or break it."""
    answer = await stand.client("device").post("/v1/sessions", json=order(LATENCY, name=f"cam{sign}gpj"))
    assert (answer.status_code, "name" in answer.text) == (422, True)
    assert (await stand.client("device").post("/v1/sessions", json=order(LATENCY, name="Hof – 庭 مرحبا"))).is_success


async def test_session_of_an_application_without_variants_is_unavailable(stand: Stand) -> None:
    """The processors are not named as the cause."""
    assert (await stand.client("harbour").delete("/v1/models/digits/variants/fp32")).status_code == 200
    assert refusal(await stand.client("device").post("/v1/sessions", json=order(LATENCY))) == (409, "model-unavailable")


async def test_session_promise_that_cannot_be_kept_is_refused_with_good_offers(stand: Stand) -> None:
    """409 names the cause; each offer, posted at once, is taken."""
    device = stand.client("device")
    slow = order({"kind": "latency", "slo_ms": 100, "rate_rps": 10}, link={"rtt_ms": 150, "uplink_mbps": 5})
    refused = await device.post("/v1/sessions", json=slow)
    assert refused.status_code == 409
    problem = refused.json()
    assert problem["type"].endswith("/promise-not-possible")
    assert problem["cause"] == "link"
    assert problem["offers"]
    for offer in problem["offers"]:
        answer = await good(device.post("/v1/sessions", json=slow | {"promise": offer}))
        await device.delete(f"/v1/sessions/{answer['id']}")
    waits = await device.post("/v1/sessions", json=slow | {"wait": True})
    assert (waits.status_code, waits.json()["state"]) == (201, "waiting")
    assert waits.json()["reason"].startswith("link: ")


async def test_frame_run_outlives_its_connection(stand: Stand, digits: toys.Digits) -> None:
    """A device that comes back has its result."""
    live = await joined(stand, LATENCY)
    sessions = stand.appliance.running().sessions
    picture = samples(digits, 1)[0][0]
    frame = sessions.frame_begins(live, head(stand, 0, picture))
    frame.received(picture)
    asking = asyncio.create_task(frame.answer(Media(picture, "image/png"), "a"))
    await until(lambda: frame.variant, every_s=0)  # its run has begun
    asking.cancel()
    again = sessions.frame_begins(live, head(stand, 0, picture))
    again.received(picture)
    assert (await again.answer(Media(picture, "image/png"), "b")).end is FrameEnd.ANSWERED
    assert (live.counts.sent, live.counts.answered, live.counts.under_way) == (1, 1, 0)


async def test_session_is_paused_resumed_and_given_another_promise(stand: Stand) -> None:
    """A paused session holds no capacity and takes no frame; a promise that cannot be kept leaves the old one, also
    while the planner is not asked.
    """
    device = stand.client("device")
    live = await joined(stand, LATENCY, link={"rtt_ms": 20})
    path = f"/v1/sessions/{live.id}"
    paused = (await device.patch(path, json={"paused": True})).json()
    assert (paused["state"], paused["paused"], paused["plan"]) == ("suspended", True, None)
    with pytest.raises(FrameDropped) as raised:
        stand.appliance.running().sessions.frame_begins(live, head(stand, 6, b"x"))
    assert raised.value.cause == DropCause.NOT_SERVED
    assert (await device.patch(path, json={"promise": LATENCY | {"rate_rps": 1e-310}})).status_code == 422
    going = (await device.patch(path, json={"paused": False})).json()
    assert (going["state"], going["promise"]["rate_rps"]) == ("served", 10)
    changed = (await device.patch(path, json={"promise": LATENCY | {"rate_rps": 5}})).json()
    assert (changed["promise"]["rate_rps"], changed["state"]) == (5, "served")
    assert (await device.patch(path, json={"promise": LATENCY | {"slo_ms": 15}})).status_code == 409
    kept = (await device.get(path)).json()
    assert (kept["promise"], kept["state"]) == (changed["promise"], "served")


async def test_session_decisions_can_be_replayed_by_their_tenant(stand: Stand) -> None:
    """The decisions are in the log, in the form that `appliance plan` reads."""
    await joined(stand, LATENCY)
    await joined(stand, ACCURACY)
    harbour, museum = stand.client("harbour"), stand.client("museum")
    for kind, reader in (("adaptation", adaptation), ("offload", offload)):
        own = BOXS_OWN[kind]
        for item in (await shown_when(harbour, f"/v1/decisions?kind={kind}", lambda page: page["items"]))["items"]:
            question = reader.read(item["problem"])
            answer = question.answer(question.decide())
            assert set(own) - {"session"} <= item["answer"].keys()
            assert differences({key: value for key, value in item["answer"].items() if key not in own}, answer) == []
    assert (await museum.get("/v1/decisions", params={"kind": "adaptation"})).json()["items"] == []


async def test_infer_frames_of_a_planned_batch_run_together(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the last of the batch is there, and before their tenant's other work."""
    box = stand.appliance.running()
    live = await joined(stand, ACCURACY, "harbour", application="adding")
    gates = Batches(stand.appliance.clock, box.engine.queue, "lane", "harbour")
    monkeypatch.setattr(box.sessions.planning, "gates_of", lambda _: gates)  # the planner makes others meanwhile
    start_ns = stand.appliance.clock.now_ns() + 60 * NS_PER_S
    gates.plan([PlannedBatch(start_ns, NS_PER_MS, 0, frozenset({(live.id, 0), (live.id, 1)}))])
    seen: list[Request] = []
    infer = box.engine.infer

    async def watched(request: Request) -> Result:
        seen.append(request)
        return await infer(request)

    monkeypatch.setattr(box.engine, "infer", watched)
    client = stand.client("harbour")
    inputs = (await client.get("/v2/models/adding")).json()["inputs"]
    data = {"shape": [1, 4], "datatype": "FP32", "data": [1.0, 2.0, 3.0, 4.0]}
    body = {"inputs": [data | {"name": one["name"]} for one in inputs]}

    async def asked(number: int) -> int:
        headers = {"X-Session": live.id, "X-Frame": str(number)}
        return (await client.post("/v2/models/adding/infer", json=body, headers=headers)).status_code

    first = asyncio.create_task(asked(0))
    await until(lambda: gates.has_come((live.id, 0)))
    assert len(box.engine.queue) == 1
    assert (await asked(1), await first) == (200, 200)
    assert [request.slot.lane for request in seen] == ["lane", "lane"]
    assert all(request.priority == PLANNED_PRIORITY and request.slot.is_planned for request in seen)
    assert gates.counts.full == 1


async def test_session_promises_of_distinct_accuracy_are_bounded(stand: Stand) -> None:
    """Each least accuracy is planned by itself, so a tenant has 32 of them at most; sessions that are there go on."""
    kinds = [LATENCY | {"accuracy_min": number / 1000, "rate_rps": 0.1} for number in range(1, 33)]
    client = stand.client("harbour")
    for kind in kinds:
        await good(client.post("/v1/sessions", json=order(kind, fps=1, wait=True)))
    one_more = order(kinds[0] | {"accuracy_min": 0.5}, fps=1, wait=True)
    assert refusal(await client.post("/v1/sessions", json=one_more)) == (429, "too-many-sessions")
    assert (await client.post("/v1/sessions", json=order(kinds[3], fps=1, wait=True))).status_code == 201


async def test_restart_takes_sessions_back(stand: Stand, digits: toys.Digits, tmp_path: Path) -> None:
    """With their promises, suspended until the device is heard of, and served with its first frame; those of pipelines
    as clients; ended sessions stay away.
    """
    live = await joined(stand, LATENCY, name="left")
    gone = await joined(stand, ACCURACY, name="gone")
    await stand.client("device").delete(f"/v1/sessions/{gone.id}")
    stages = [{"name": "what", "application": "digits"}]
    pipeline = {"name": "one", "latency_slo_ms": 60_000, "stages": stages}
    await good(stand.client("harbour").post("/v1/pipelines", json=pipeline))
    of_pipeline = await joined(stand, LATENCY, "harbour", application=None, pipeline="one")
    picture = samples(digits, 1)[0][0]
    await stand.close()
    shutil.copytree(stand.state_dir, tmp_path / "again", ignore=shutil.ignore_patterns("*.lock", "lock"))
    async with stand_on(tmp_path / "again", stand.keys) as again:
        sessions = again.appliance.running().sessions
        assert sessions.live.keys() == {live.id, of_pipeline.id}
        shown = (await again.client("harbour").get("/v1/pipelines/one")).json()
        assert [one["id"] for one in shown["clients"]] == [of_pipeline.id]
        back = sessions.live[live.id]
        assert (back.session, back.state) == (live.session, SessionState.SUSPENDED)
        await until(lambda: back.plan is not None)  # the loop plans, in real time
        assert (await answered(again, back, 40, picture)).end is FrameEnd.ANSWERED
        assert back.state is SessionState.SERVED


async def test_frame_result_names_the_variant_that_answered(stand: Stand) -> None:
    """A request over `/v2` may name another variant than the plan: what the device shows is of that, and so is what
    memory refuses.
    """
    live = await joined(stand, LATENCY)
    device, box = stand.client("device"), stand.appliance.running()
    (tensor,) = (await device.get("/v2/models/digits")).json()["inputs"]
    shape = [1, *tensor["shape"][1:]]
    numbers = [0.0] * math.prod(shape)
    body = {"inputs": [{"name": tensor["name"], "shape": shape, "datatype": "FP32", "data": numbers}]}

    async def variant_of(number: int, path: str) -> tuple[int, str]:
        assert live.plan is not None
        live.plan = replace(live.plan, variant="planned")
        answer = await device.post(path, json=body, headers={"X-Frame": str(number), "X-Session": live.id})
        (result,) = [one for one in live.results_since(None) if one.frame == number]
        return answer.status_code, result.variant

    named = "/v2/models/digits/versions/fp32/infer"
    assert await variant_of(0, named) == (200, "fp32")

    async def refuse(request: Request) -> Result:
        raise OutOfMemory(build_id="fp32", need_bytes=2, budget_bytes=1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(box.engine, "infer", refuse)
        assert await variant_of(3, named) == (503, "fp32")
    assert box.sessions.planning.zoos.alone(key_of(live)).without == {"fp32"}


async def test_device_reports_of_an_application_are_dropped_with_the_application(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or with the model that it asked."""
    harbour, box = stand.client("harbour"), stand.appliance.running()
    order = {"name": "gate", "model": "digits"}
    assert (await harbour.post("/v1/applications", json=order)).status_code == 201
    accuracy, forgotten = box.sessions.planning.accuracy, list[str]()
    forget = accuracy.forget

    def watched(application_id: str) -> None:
        forgotten.append(application_id)
        forget(application_id)

    monkeypatch.setattr(accuracy, "forget", watched)
    assert (await harbour.patch("/v1/applications/gate", json={"weight": 2})).status_code == 200
    assert forgotten == []
    assert (await harbour.patch("/v1/applications/gate", json={"model": "adding"})).status_code == 200
    assert forgotten == ["harbour/gate"]
    assert (await harbour.delete("/v1/applications/gate")).status_code == 200
    assert forgotten == ["harbour/gate", "harbour/gate"]
