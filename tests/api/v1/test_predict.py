"""Media in, answers out, over HTTP."""

import json

import numpy as np
import pytest

from appliance.demo.zoo import toys
from appliance.domain.errors import QuotaExceeded
from appliance.domain.request import Request
from tests.api.stand import Asking, Stand, request_end
from tests.api.v1.pictures import samples

pytestmark = pytest.mark.anyio
SELDOM = 0.001
"""Requests a second: none more is allowed while a test runs, however slow the machine is."""


async def test_predict_recognises_real_pictures(stand: Stand, digits: toys.Digits) -> None:
    """A device sends drawn digits and gets their labels, the variant with its accuracy, and where the time went."""
    device = stand.client("device")
    right = 0
    for picture, label in samples(digits, 20):
        answer = (await device.post("/v1/applications/digits/predict", content=picture)).json()
        right += answer["labels"][0]["label"] == label
    assert right >= 17
    assert (answer["application"], answer["model"], answer["variant"]) == ("digits", "digits", "fp32")
    assert 0.5 < answer["accuracy"] <= 1
    assert answer["warm"] is True
    timings = answer["timings_ms"]
    assert set(timings) == {"decode", "queue", "load", "wake", "compute", "encode", "total"}
    assert timings["load"] == 0
    assert sum(timings.values()) - timings["total"] <= timings["total"] + 0.01


async def test_predict_tells_the_cold_start_in_the_first_answer(stand: Stand, digits: toys.Digits) -> None:
    """Nothing is loaded at first: the first answer is cold and has a load time, the second is warm."""
    device = stand.client("device")
    picture = samples(digits, 1)[0][0]
    first, second = [(await device.post("/v1/applications/digits/predict", content=picture)).json() for _ in range(2)]
    assert (first["warm"], second["warm"]) == (False, True)
    assert first["timings_ms"]["load"] > 0
    assert first["labels"] == second["labels"]


async def test_predict_gives_form_and_body_the_same_answer(stand: Stand, digits: toys.Digits) -> None:
    """A browser's form with one file is as good as the bare body."""
    device = stand.client("device")
    picture = samples(digits, 1)[0][0]
    bare = await device.post("/v1/applications/digits/predict", content=picture)
    form = await device.post("/v1/applications/digits/predict", files={"file": ("a.png", picture, "image/png")})
    assert form.status_code == 200
    assert form.json()["labels"] == bare.json()["labels"]


async def test_predict_takes_and_answers_json_tensors(stand: Stand) -> None:
    """Of a model without media; a shared model serves every tenant under its name."""
    body = {"inputs": {"A": [[1, 2, 3, 4]], "B": [[10, 20, 30, 40]]}}
    answer = await stand.client("museum").post("/v1/applications/adding/predict", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["outputs"]["SUM"]["data"] in ([11, 22, 33, 44], [[11, 22, 33, 44]])


async def test_request_id_of_the_caller_comes_back(stand: Stand, digits: toys.Digits) -> None:
    """The caller's own name for a request stands in the header and in the answer."""
    device = stand.client("device", **{"X-Request-Id": "frame-17"})
    answer = await device.post("/v1/applications/digits/predict", content=samples(digits, 1)[0][0])
    assert answer.headers["x-request-id"] == "frame-17"
    assert answer.json()["request_id"] == "frame-17"


@pytest.mark.parametrize(
    ("content", "query", "status", "kind"),
    [
        (b"", "", 422, "bad-media"),
        (b"no picture at all", "", 422, "bad-media"),
        (b"\x89PNG\r\n\x1a\n....", "", 422, "bad-media"),
        (None, "?variant=int9", 404, "unknown-variant"),
        (None, "?timeout_ms=0.000001", 504, "deadline-exceeded"),
        (None, "?timeout_ms=-1", 422, "invalid-request"),
        (None, "?priority=1000", 422, "invalid-request"),
        (None, "?sequence_id=" + "x" * 200, 422, "invalid-request"),
    ],
)
async def test_predict_request_that_is_wrong_gets_its_own_problem(
    stand: Stand, digits: toys.Digits, content: bytes | None, query: str, status: int, kind: str
) -> None:
    if content is None:
        content = samples(digits, 1)[0][0]
    answer = await stand.client("device").post("/v1/applications/digits/predict" + query, content=content)
    assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{kind}")


async def test_named_variant_answers(stand: Stand, digits: toys.Digits) -> None:
    answer = await stand.client("device").post(
        "/v1/applications/digits/predict?variant=fp32", content=samples(digits, 1)[0][0]
    )
    assert answer.json()["variant"] == "fp32"


async def test_unloaded_model_refuses_until_loaded(stand: Stand, digits: toys.Digits) -> None:
    """An explicit unload holds until an explicit load."""
    harbour, picture = stand.client("harbour"), samples(digits, 1)[0][0]
    assert (await harbour.post("/v2/repository/models/digits/unload")).status_code == 200
    refused = await harbour.post("/v1/applications/digits/predict", content=picture)
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/model-unavailable")
    assert (await harbour.post("/v2/repository/models/digits/load")).status_code == 200
    assert (await harbour.post("/v1/applications/digits/predict", content=picture)).status_code == 200


async def test_rate_quota_refuses_with_the_time_to_wait(stand: Stand, digits: toys.Digits) -> None:
    """A tenant whose requests are used up gets 429 with Retry-After; other tenants go on."""
    quota = {"quota": {"requests_per_s": SELDOM}}
    assert (await stand.client().put("/v1/tenants/harbour", json=quota)).status_code == 200
    device, picture = stand.client("device"), samples(digits, 1)[0][0]
    answers = [await device.post("/v1/applications/digits/predict", content=picture) for _ in range(3)]
    assert answers[0].status_code == 200
    assert answers[2].status_code == 429
    assert answers[2].json()["type"] == "/problems/quota-exceeded"
    assert int(answers[2].headers["retry-after"]) >= 1
    body = {"inputs": {"A": [[1, 2, 3, 4]], "B": [[1, 2, 3, 4]]}}
    assert (await stand.client("museum").post("/v1/applications/adding/predict", json=body)).status_code == 200


async def test_rate_quota_counts_the_runs_of_one_call_once(stand: Stand) -> None:
    """The runs of a call that was admitted take no token, the next call does."""
    box, tenant = stand.appliance.running(), "museum"
    await stand.client().put("/v1/tenants/museum", json={"quota": {"requests_per_s": SELDOM}})
    row = np.ones((1, 4), np.float32)

    def step(is_admitted: bool) -> Request:
        return Request("default/adding", tenant, {"A": row, "B": row}, box.clock.now_ns(), is_admitted=is_admitted)

    await box.engine.infer(step(False))
    for _ in range(5):
        await box.engine.infer(step(True))
    with pytest.raises(QuotaExceeded):
        await box.engine.infer(step(False))


async def test_body_above_the_limit_is_refused_unread(stand: Stand) -> None:
    """A body that announces too much is answered 413 before a byte of it is asked for."""
    headers = {"Authorization": f"Bearer {stand.keys['device']}", "Content-Length": str(2**40)}
    path = "/v1/applications/digits/predict"
    async with Asking(stand.appliance.asgi, "POST", path, headers) as asking:
        assert await asking.status() == 413
        assert json.loads(await asking.piece())["type"] == "/problems/too-large"


@pytest.mark.parametrize(
    "path", ["/v1/applications/no/predict", "/v1/pipelines/no/predict", "/v2/models/no/infer", "/v1/no", "/v2/no"]
)
async def test_body_above_the_limit_for_an_unknown_name_is_404(stand: Stand, path: str) -> None:
    """What is wrong with the name goes before what is wrong with the body."""
    headers = {"Authorization": f"Bearer {stand.keys['harbour']}", "Content-Length": str(2**40)}
    async with Asking(stand.appliance.asgi, "POST", path, headers) as asking:
        assert await asking.status() == 404


async def test_predict_answers_with_a_picture_where_asked_and_possible(stand: Stand) -> None:
    """Any other answer is JSON whatever was asked for."""
    harbour = stand.client("harbour")
    rows = [[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 8.0]]
    body = {"inputs": {"A": rows, "B": rows}}
    path = "/v1/applications/adding/predict"
    for kind, magic in (("image/png", b"\x89PNG"), ("image/jpeg", b"\xff\xd8")):
        answer = await harbour.post(path, json=body, headers={"Accept": kind})
        assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
        assert answer.content.startswith(magic)
    for accept in ("*/*", "application/json", "application/json, image/png;q=0.1"):
        answer = await harbour.post(path, json=body, headers={"Accept": accept})
        assert answer.json()["outputs"]
    one_row = {"inputs": {"A": rows[:1], "B": rows[:1]}}
    assert (await harbour.post(path, json=one_row, headers={"Accept": "image/png"})).json()["variant"] == "fp32"
    later = await harbour.post(path + "?wait=false", json=body, headers={"Accept": "image/png"})
    assert (await request_end(harbour, later.headers["location"]))["result"]["outputs"]
