"""Frames as plain requests: `…/frames`, `predict` and `/v2 … infer` with headers, from any client, counted and planned
as those of a stream.
"""

import asyncio
import re
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest
from tritonclient import http as triton

from appliance.api.streams.plain import answer_of
from appliance.domain.errors import FrameDropped
from appliance.domain.session import DropCause, FrameEnd
from appliance.runtime.sessions.frame import FrameResult
from tests.api.stand import refusal
from tests.api.streams.conftest import LATENCY, Box
from tests.api.streams.device import PATIENCE_S
from tests.attacks.wire import head

pytestmark = pytest.mark.anyio
PLAN = re.compile(
    r"(size=\d+, )?quality=(?P<quality>\d+), (next=(?P<next>\d+), )?wait_ms=(?P<wait>\d+), "
    r'variant="(?P<variant>[\w.-]+)"'
)


def plan_of(answer: httpx.Response) -> dict[str, str]:
    """What the answer says to send next."""
    found = PLAN.fullmatch(answer.headers["session-plan"])
    assert found is not None, answer.headers["session-plan"]
    return found.groupdict()


def frame(number: int, **headers: str) -> dict[str, str]:
    return {"X-Frame": str(number), "X-Capture-Age-Ms": "5"} | headers


async def test_posted_frames_are_answered_as_predict_and_counted_once(box: Box) -> None:
    """Each answer says what to send next; a repeat has the same answer."""
    session = await box.join()
    path = f"/v1/sessions/{session}/frames"
    async with box.http() as client:
        for number in (0, 3, 6):
            answer = await client.post(path, content=box.pictures[0], headers=frame(number))
            assert answer.status_code == 200, answer.text
            plan = plan_of(answer)
            assert (plan["next"], plan["variant"]) == (str(number + 3), "fp32")
        expected = (await client.post("/v1/applications/digits/predict", content=box.pictures[0])).json()
        assert answer.json()["labels"] == expected["labels"]
        again = await client.post(path, content=box.pictures[0], headers=frame(6))
        assert again.json() == answer.json()
        other = await client.post(path, content=box.pictures[1], headers=frame(6))
        assert refusal(other) == (409, "frame-mismatch")
        assert plan_of(other)["variant"] == "fp32"
        far = await client.post(path, content=box.pictures[1], headers=frame(10**15))
        assert far.status_code == 409
        assert plan_of(far)["variant"] == "fp32"
    shown = await box.shown(session)
    assert (shown["sent"], shown["answered"]) == (3, 3)


async def test_predict_with_a_session_header_takes_a_frame(box: Box) -> None:
    """Without the header nothing has changed, and no plan is told."""
    session = await box.join()
    path = "/v1/applications/digits/predict"
    async with box.http() as client:
        headers = frame(0) | {"X-Session": session}
        answer = await client.post(path, content=box.pictures[0], headers=headers)
        assert (answer.status_code, plan_of(answer)["next"]) == (200, "3")
        plain = await client.post(path, content=box.pictures[0])
        assert "session-plan" not in plain.headers
        assert plain.json()["labels"] == answer.json()["labels"]
        form = await client.post(path, files={"file": ("a.png", box.pictures[1])}, headers=headers | {"X-Frame": "3"})
        assert form.status_code == 200
        for query in ("?wait=false", "?sequence_id=s"):
            assert (await client.post(path + query, content=box.pictures[0], headers=headers)).status_code == 422
        assert (await box.shown(session))["sent"] == 2
    async with box.http("probe") as client:
        headers["X-Session"] = session
        assert refusal(await client.post(path, content=box.pictures[0], headers=headers)) == (404, "unknown-session")


@pytest.mark.parametrize(
    ("headers", "status", "type"),
    [
        ({"X-Frame": ""}, 422, "bad-input"),
        ({"X-Frame": "-1"}, 422, "bad-input"),
        ({"X-Frame": "1.5"}, 422, "bad-input"),
        ({"X-Frame": "9" * 16}, 422, "bad-input"),
        ({"X-Capture-Age-Ms": "soon"}, 422, "bad-input"),
        ({"X-Capture-Age-Ms": "-60000"}, 504, "frame-dropped"),
        ({"X-Capture-Age-Ms": "60000"}, 504, "frame-dropped"),
        ({"X-Capture-Age-Ms": "nan"}, 504, "frame-dropped"),
        ({"X-Capture-Age-Ms": "inf"}, 504, "frame-dropped"),
        ({"X-Capture-Age-Ms": "-inf"}, 504, "frame-dropped"),
        ({"X-Capture-Age-Ms": "1e308"}, 504, "frame-dropped"),
    ],
    ids=str,
)
async def test_frame_headers_that_are_broken_or_absurd_are_refused(
    box: Box, headers: dict[str, str], status: int, type: str
) -> None:
    """Broken headers are 422; a frame of an absurd age has expired, and counts."""
    session = await box.join()
    async with box.http() as client:
        answer = await client.post(
            f"/v1/sessions/{session}/frames", content=box.pictures[0], headers=frame(0) | headers
        )
        assert refusal(answer) == (status, type), answer.text
        assert plan_of(answer)["variant"] == "fp32"
    shown = await box.shown(session)
    assert shown["drops"] == ({"expired": 1} if status == 504 else {})


async def test_bodies_that_are_no_frames_are_refused_with_the_plan(box: Box) -> None:
    """None, no picture, and too much, announced or not; each is counted as bad media."""
    session = await box.join()

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield bytes(2**20)

    path = f"/v1/sessions/{session}/frames"
    async with box.http() as client:
        assert (await client.post(path, headers=frame(0))).json()["type"] == "/problems/bad-media"
        assert refusal(await client.post(path, content=b"no picture", headers=frame(1))) == (422, "bad-media")
        for number, content in ((2, bytes(4 * 2**20 + 1)), (3, pieces())):
            large = await client.post(path, content=content, headers=frame(number))
            assert refusal(large) == (413, "too-large")
            assert plan_of(large)["variant"] == "fp32"
        predict = "/v1/applications/digits/predict"
        large = await client.post(predict, content=bytes(4 * 2**20 + 1), headers=frame(4, **{"X-Session": session}))
        assert (large.status_code, plan_of(large)["variant"]) == (413, "fp32")
        unknown = await client.post("/v1/sessions/none/frames", content=bytes(4 * 2**20 + 1), headers=frame(5))
        assert unknown.status_code == 404
        assert (await client.post(path, content=box.pictures[0], headers=frame(6))).status_code == 200
    shown = await box.shown(session)
    assert (shown["sent"], shown["answered"], shown["drops"]) == (6, 1, {"bad-media": 5})
    assert shown["sent"] == shown["answered"] + shown["dropped"] + shown["lost"] + shown["late"]


async def test_posted_frame_above_the_credit_is_refused_at_its_head(box: Box) -> None:
    """While two bodies are under way."""
    session = await box.join()
    host, port = box.server.url.removeprefix("http://").split(":")

    async def begin(number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(host, int(port))
        path, size = f"/v1/sessions/{session}/frames", len(box.pictures[0])
        writer.write(head("POST", path, box.keys["device"], x_frame=number, content_length=size) + box.pictures[0][:10])
        return reader, writer

    opened = [await begin(number) for number in range(2)]
    async with asyncio.timeout(PATIENCE_S):
        while (await box.shown(session))["sent"] < 2:
            pass
    reader, third = await begin(2)
    assert b" 429 " in await reader.readline()
    third.close()
    for reader, writer in opened:
        writer.write(box.pictures[0][10:])
        assert b" 200 " in await reader.readline()
        writer.close()
    assert (await box.shown(session))["drops"] == {"credit": 1}


async def test_infer_with_a_session_header_takes_a_frame(box: Box) -> None:
    """An unchanged client of the Open Inference Protocol, with headers: the same outputs, and the plan."""
    session = await box.join("harbour", application="adding")
    async with box.http("harbour") as client:
        tensor = {"name": "a", "shape": [1, 4], "datatype": "FP32", "data": [1.0, 2.0, 3.0, 4.0]}
        metadata = (await client.get("/v2/models/adding")).json()
        inputs = [tensor | {"name": one["name"]} for one in metadata["inputs"]]
        path = "/v2/models/adding/infer"
        plain = await client.post(path, json={"inputs": inputs})
        assert plain.status_code == 200, plain.text
        assert "session-plan" not in plain.headers
        headers = frame(0) | {"X-Session": session}
        answer = await client.post(path, json={"inputs": inputs}, headers=headers)
        assert answer.json()["outputs"] == plain.json()["outputs"]
        assert plan_of(answer)["next"] == "3"
        again = await client.post(path, json={"inputs": inputs}, headers=headers)
        assert again.content == answer.content
        other = await client.post(path, json={"inputs": inputs, "id": "other"}, headers=headers)
        assert (other.status_code, other.headers["problem-type"]) == (409, "/problems/frame-mismatch")
        assert (await client.post(path, json={"inputs": []}, headers=headers | {"X-Frame": "1"})).status_code == 400
        wrong = await client.post("/v2/models/digits/infer", json={"inputs": inputs}, headers=headers)
        assert wrong.status_code == 422
        assert (await box.shown(session, "harbour"))["sent"] == 2


def test_tritonclient_sends_frames_with_session_headers(box: Box) -> None:
    """With binary tensors, small ones and such as come in several pieces."""
    key = {"Authorization": f"Bearer {box.keys['harbour']}"}
    with httpx.Client(base_url=box.server.url, headers=key, timeout=PATIENCE_S) as http:
        order = {"application": "digits", "fps": 30, "promise": LATENCY}
        session = http.post("/v1/sessions", json=order).json()["id"]
        shape = http.get("/v2/models/digits").json()["inputs"][0]
        client = triton.InferenceServerClient(box.server.url.removeprefix("http://"))
        tensor = np.zeros([1, *shape["shape"][1:]], np.float32)
        given = triton.InferInput(shape["name"], list(tensor.shape), "FP32")
        given.set_data_from_numpy(tensor)
        headers = key | {"X-Session": session}
        wanted = client.infer("digits", [given], headers=dict(key))
        for number in (0, 3):
            result = client.infer("digits", [given], headers=headers | frame(number))
            name = result.get_response()["outputs"][0]["name"]
            assert np.array_equal(result.as_numpy(name), wanted.as_numpy(name))
        assert http.get(f"/v1/sessions/{session}").json()["answered"] == 2


def test_kept_error_of_a_frame_gets_no_traceback() -> None:
    """What is raised from it is a copy with the same facts."""
    kept = FrameDropped(frame=3, cause="late")
    result = FrameResult(3, FrameEnd.DROPPED, 0, cause=DropCause.LATE, error=kept)
    for _ in range(2):
        with pytest.raises(FrameDropped) as raised:
            answer_of(result)
        assert raised.value.facts() == kept.facts()
        assert kept.__traceback__ is None
