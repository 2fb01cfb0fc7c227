"""Media in, answers out, over HTTP."""

import json
from pathlib import Path

import pytest

from appliance.demo.zoo import toys
from tests.api.hand_written_networks import loudness
from tests.api.sounds import tones
from tests.api.stand import ROWS, Asking, Stand, good, imported, refusal, request_end
from tests.api.v1.digit_pictures import samples

pytestmark = pytest.mark.anyio
DIGITS = "/v1/applications/digits/predict"
SELDOM = 0.001
"""Requests a second: none more is allowed while a test runs, however slow the machine is."""


async def test_predict_recognises_real_pictures(stand: Stand, digits: toys.Digits) -> None:
    """A device sends drawn digits and gets their labels, the variant with its accuracy, and where the time went: the
    first start is cold and has a load time.
    """
    device, pictures = stand.client("device"), samples(digits, 20)
    answers = [(await device.post(f"{DIGITS}?variant=fp32", content=picture)).json() for picture, _ in pictures]
    pairs = zip(answers, pictures, strict=True)
    assert sum(answer["labels"][0]["label"] == label for answer, (_, label) in pairs) >= 17
    first, answer = answers[0], answers[-1]
    assert (first["warm"], first["timings_ms"]["load"] > 0) == (False, True)
    assert (answer["application"], answer["model"], answer["variant"]) == ("digits", "digits", "fp32")
    assert 0.5 < answer["accuracy"] <= 1
    assert answer["accuracy_meaning"] == "agreement with fp32", "nobody has sent labels"
    assert answer["warm"] is True
    timings = answer["timings_ms"]
    assert set(timings) == {"decode", "queue", "load", "wake", "compute", "encode", "total"}
    assert timings["load"] == 0
    assert sum(timings.values()) - timings["total"] <= timings["total"] + 0.01


async def test_sound_of_many_runs_counts_as_one_request(stand: Stand, tmp_path: Path) -> None:
    """In the figures of its application and of the box; its rows and runs are counted beside that."""
    museum = stand.client("museum")
    network = loudness(tmp_path / "loudness.onnx").read_bytes()
    await imported(museum, "listener", network, "voice-activity", metadata={"precisions": []})
    await good(museum.patch("/v1/applications/listener", json={"latency_slo_ms": 3_600_000}))
    sound = tones(tmp_path / "sound.wav", rate=16_000, seconds=4)
    await good(museum.post("/v1/applications/listener/predict", content=sound.read_bytes()))
    shown = (await museum.get("/v1/applications/listener")).json()
    assert (shown["served"]["requests"], shown["served"]["warm"] + shown["served"]["cold"]) == (1, 1)
    assert (shown["slo_requests"], shown["slo_kept"]) == (1, 1.0)
    (row,) = (await museum.get("/v2/models/listener/stats")).json()["model_stats"]
    assert (row["inference_stats"]["success"]["count"], row["inference_count"]) == (1, 125)
    assert row["execution_count"] == 125


async def test_predict_gives_form_and_body_the_same_answer(stand: Stand, digits: toys.Digits) -> None:
    """A browser's form with one file is as good as the bare body."""
    device = stand.client("device")
    picture = samples(digits, 1)[0][0]
    bare = await device.post(DIGITS, content=picture)
    form = await device.post(DIGITS, files={"file": ("a.png", picture, "image/png")})
    assert form.status_code == 200
    assert form.json()["labels"] == bare.json()["labels"]


async def test_predict_takes_and_answers_json_tensors(stand: Stand) -> None:
    """Of a model without media; a shared model serves every tenant under its name."""
    answer = await good(stand.client("museum").post("/v1/applications/adding/predict", json=ROWS))
    assert answer["outputs"]["SUM"]["data"] in ([11, 22, 33, 44], [[11, 22, 33, 44]])


async def test_request_id_of_the_caller_comes_back(stand: Stand, digits: toys.Digits) -> None:
    """The caller's own name for a request stands in the header and in the answer."""
    device = stand.client("device", **{"X-Request-Id": "frame-17"})
    answer = await device.post(DIGITS, content=samples(digits, 1)[0][0])
    assert answer.headers["x-request-id"] == "frame-17"
    assert answer.json()["request_id"] == "frame-17"


@pytest.mark.parametrize(
    ("content", "path", "status", "kind"),
    [
        (b"", DIGITS, 422, "bad-media"),
        (b"", f"{DIGITS}?wait=false", 422, "bad-media"),
        (b"no picture at all", DIGITS, 422, "bad-media"),
        (b"\x89PNG\r\n\x1a\n....", DIGITS, 422, "bad-media"),
        (None, f"{DIGITS}?variant=int9", 404, "unknown-variant"),
        (None, f"{DIGITS}?variant=int9&wait=false", 404, "unknown-variant"),
        (None, f"{DIGITS}?timeout_ms=0.000001", 504, "deadline-exceeded"),
        (None, f"{DIGITS}?timeout_ms=-1", 422, "invalid-request"),
        (None, f"{DIGITS}?priority=1000", 422, "invalid-request"),
        (None, f"{DIGITS}?priority=1000&wait=false", 422, "invalid-request"),
        (None, f"{DIGITS}?sequence_id=" + "x" * 200, 422, "invalid-request"),
        (None, f"{DIGITS}?sequence_id=a&wait=false", 409, "illegal-state"),
        (None, f"{DIGITS}?wait=perhaps", 422, "invalid-request"),
        (None, "/v1/applications/nothing/predict?wait=false", 404, "unknown-application"),
    ],
)
async def test_predict_request_that_is_wrong_gets_its_own_problem(
    stand: Stand, digits: toys.Digits, content: bytes | None, path: str, status: int, kind: str
) -> None:
    """At once, also where the answer would come later; nothing of it is kept."""
    answer = await stand.client("probe").post(path, content=samples(digits, 1)[0][0] if content is None else content)
    assert refusal(answer) == (status, kind)
    deferred = stand.appliance.running().deferred
    assert (deferred.under_way, deferred.kept) == (0, 0)


async def test_rate_quota_refuses_with_the_time_to_wait(stand: Stand, digits: toys.Digits) -> None:
    """A tenant whose requests are used up gets 429 with Retry-After; other tenants go on."""
    quota = {"quota": {"requests_per_s": SELDOM}}
    assert (await stand.client().put("/v1/tenants/harbour", json=quota)).status_code == 200
    device, picture = stand.client("device"), samples(digits, 1)[0][0]
    answers = [await device.post(DIGITS, content=picture) for _ in range(3)]
    assert answers[0].status_code == 200
    assert answers[2].status_code == 429
    assert answers[2].json()["type"] == "/problems/quota-exceeded"
    assert int(answers[2].headers["retry-after"]) >= 1
    assert (await stand.client("museum").post("/v1/applications/adding/predict", json=ROWS)).status_code == 200


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
