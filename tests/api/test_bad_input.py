"""Nonsense of every kind is answered as the caller's mistake, and leaves nothing behind that breaks a later answer."""

import io
import json
import zipfile
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import httpx
import numpy as np
import pytest
from fastapi.routing import APIRoute

from appliance.api.http.routes import StrictRoute
from appliance.api.service import ROUTERS
from appliance.wire import fields
from appliance.wire.shape import Order
from tests.api.stand import Asking, Stand, good, job_end, refusal

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
DEEP = "[" * 10_000
LONG = "x" * 2**20
BODYLESS = {"/v1/backups": {"POST"}, "/v1/sign-in/links": {"POST"}}
"""What takes no body, and reads none."""
DIGITS = "9" * 4300
HALF = "\\ud800"
ODD_TEXTS = (HALF, "\\u0000", "a\\nb", "\\u009b31m", f"x{HALF}y")
STRICT = {fields.Text, fields.Whole, fields.Real, fields.Flag, fields.Instant}


def orders() -> list[type[Order]]:
    """What routes take as JSON, with what stands inside."""
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    waiting = [route.body_field.field_info.annotation for route in routes if route.body_field is not None]
    found: list[type[Order]] = []
    while waiting:
        order = waiting.pop()
        if isinstance(order, type) and issubclass(order, Order) and order not in found:
            found.append(order)
            waiting += [one.annotation for one in order.model_fields.values()]
    return found


def loose(kind: Any) -> list[type]:
    """Plain types in an annotation, which let through what the box cannot hold."""
    if kind in STRICT or (get_origin(kind) is Annotated and kind.__metadata__):
        return []
    if get_origin(kind) in (Union, UnionType, list, tuple):
        return [one for part in get_args(kind) for one in loose(part)]
    return [kind] if kind in (str, int, float, bool) else []


def test_order_fields_have_strict_types() -> None:
    """Every field of every order is of a type of `wire.fields`, or has a pattern; a new field cannot miss it."""
    assert len(orders()) >= 7
    for order in orders():
        for name, annotation in order.__annotations__.items():
            has_pattern = "pattern" in str(order.model_fields[name].metadata) if name in order.model_fields else True
            assert not loose(annotation) or has_pattern, f"{order.__name__}.{name}: {annotation}"


def test_routes_read_json_strictly() -> None:
    """No route takes JSON from the framework's own lax reader."""
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            assert route.body_field is None or isinstance(route, StrictRoute), route.path


async def test_odd_texts_are_refused_and_lists_stay_readable(stand: Stand) -> None:
    """Control characters and half surrogate pairs, in every text."""
    admin, harbour = stand.client(**JSON), stand.client("harbour", **JSON)
    for odd in ODD_TEXTS:
        answers = [
            await harbour.post("/v1/tenants/harbour/keys", content=f'{{"label": "{odd}"}}'),
            await harbour.post("/v1/tenants/harbour/keys", content=f'{{"role": "device", "applications": ["{odd}"]}}'),
            await admin.post("/v1/tenants", content=f'{{"name": "{odd}"}}'),
            await harbour.post("/v1/applications", content=f'{{"name": "{odd}", "model": "digits"}}'),
            await harbour.post("/v1/applications", content=f'{{"name": "x", "model": "{odd}"}}'),
            await harbour.post("/v1/uploads", content=f'{{"file_name": "{odd}"}}'),
            await harbour.patch("/v1/applications/digits", content=f'{{"model": "{odd}"}}'),
        ]
        for answer in answers:
            assert answer.status_code == 422, answer.text
            assert answer.json()["type"] in ("/problems/invalid-request", "/problems/bad-name")
        form = {"name": "m", "task": "tensor", "metadata": f'{{"labels": ["{HALF}"]}}'}
        assert (await stand.client("harbour").post("/v1/models", data=form, files={"file": b"x"})).status_code == 422
    for path in ("/v1/tenants/harbour/keys", "/v1/applications", "/v1/uploads", "/v1/tenants", "/v1/jobs"):
        assert (await admin.get(path, headers={"X-Tenant": "harbour"})).status_code == 200


@pytest.mark.parametrize(
    "body",
    [DEEP, '{"name": ' + DEEP, '{"a":' * 10_000, '{"expires_in_s": 1e999}', f'{{"expires_in_s": {DIGITS}}}', "\x80"],
    ids=["deep list", "deep name", "deep object", "1e999", "4300 digits", "no utf-8"],
)
async def test_routes_refuse_odd_json_in_the_documented_shape(stand: Stand, body: str) -> None:
    """Every method and path that takes a body."""
    admin = stand.client(**JSON)
    paths = {"tenant": "harbour", "application": "digits", "model": "digits", "upload": "none", "key": "none"}
    paths |= {"variant": "fp32", "session": "none", "pipeline": "none", "receiver": "none"}
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            for method in (route.methods or set()) - {"GET", "HEAD", "DELETE"} - BODYLESS.get(route.path, set()):
                path = route.path.format_map(paths)
                answer = await admin.request(method, path, content=body.encode("latin-1"))
                assert 400 <= answer.status_code < 500, (method, path, answer.text)
                assert str(answer.status_code) in {str(status) for status in route.responses}, (method, path)
    for path in ("models/digits/infer", "repository/index", "repository/models/digits/load"):
        answer = await admin.post(f"/v2/{path}", content=body.encode("latin-1"), headers={"X-Tenant": "harbour"})
        assert answer.status_code == 400, (path, answer.text)


@pytest.mark.parametrize(
    "metadata",
    [
        {"application": 5},
        {"name": [1]},
        {"task": {"a": 1}},
        {"labels": [True]},
        {"image": {"mean": 10**40}},
        {"image": {"height": True}},
        {"params": {"a": [1]}},
        {"state": [{"input": "a", "output": "b", "shape": [True]}]},
        {"precisions": [[1]]},
        {"labels": {DIGITS: "x"}},
        {LONG[:100_000]: 1},
    ],
)
async def test_odd_model_metadata_is_refused_shortly(stand: Stand, metadata: dict[str, Any]) -> None:
    """Before anything is accepted."""
    form = {"name": "m", "metadata": json.dumps(metadata)} | ({} if "task" in metadata else {"task": "tensor"})
    answer = await stand.client("harbour").post("/v1/models", data=form, files={"file": b"x"})
    if "name" in metadata or ("image" in metadata and metadata["image"] == {"mean": 10**40}):
        assert answer.status_code < 500
    else:
        assert answer.status_code == 422, answer.text
    assert len(answer.content) < 5000


async def test_odd_header_values_are_answered_as_the_callers_mistake(stand: Stand) -> None:
    """Numbers of thousands of digits, digits that are no number, and names with anything in them."""
    harbour = stand.client("harbour")
    odd = b"\xb2"  # a superscript two: a digit to Python's text, no number
    upload = (await harbour.post("/v1/uploads", json={})).json()["id"]
    for value in (DIGITS.encode(), odd, b"-1", b"1e3", b" 5 5", b""):
        answer = await harbour.patch(f"/v1/uploads/{upload}", content=b"x", headers=[(b"Upload-Offset", value)])
        assert answer.status_code in (409, 422), answer.text
        infer = await harbour.post(
            "/v2/models/digits/infer", content=b"{}", headers=[(b"Inference-Header-Content-Length", value)]
        )
        assert infer.status_code == 400, infer.text
        assert (await stand.client().get("/v1/models", headers=[(b"X-Tenant", value or b"?")])).status_code == 404
        assert (await harbour.get("/v1/models", headers=[(b"X-Request-Id", value)])).status_code == 200
    for last in ("²", DIGITS[:20], "0" * 4300, "abc", "-1"):
        async with Asking(
            stand.appliance.asgi,
            "GET",
            "/v1/events",
            {"Authorization": f"Bearer {stand.keys['harbour']}", "Last-Event-ID": last},
        ) as asking:
            assert await asking.status() in (200, 422)
    length = Asking(stand.appliance.asgi, "POST", "/v2/models/digits/infer", {
        "Authorization": f"Bearer {stand.keys['harbour']}", "Content-Length": DIGITS,
    })  # fmt: skip
    async with length as asking:
        assert await asking.status() == 400


@pytest.mark.parametrize(
    "changed",
    [
        {"inputs": [{"name": LONG, "datatype": "FP32", "shape": [1], "data": [1]}]},
        {"inputs": [{"name": "x", "datatype": LONG, "shape": [1], "data": [1]}]},
        {"inputs": [{"name": "\0", "datatype": "FP32", "shape": [1], "data": [1]}]},
        {"outputs": [{"name": LONG}]},
        {"outputs": [{"name": "\0"}]},
        {"parameters": {"timeout": True}},
        {"parameters": {"priority": True}},
        {"parameters": {"sequence_id": True}},
        {"parameters": {"sequence_id": LONG}},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [True], "data": [1]}]},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2**62, 2**62, 0], "data": []}]},
        {"inputs": [{"name": "x", "datatype": "INT32", "shape": [1], "data": [2**63]}]},
        {"id": True},
    ],
)
async def test_odd_infer_requests_are_refused_shortly(stand: Stand, changed: dict[str, Any]) -> None:
    """A name of a megabyte does not come back in the answer."""
    good = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}
    answer = await stand.client("harbour").post("/v2/models/digits/infer", json=good | changed)
    assert answer.status_code == 400, answer.text[:500]
    assert len(answer.content) < 4000


async def test_infer_timeout_beyond_any_clock_is_the_longest_limit(stand: Stand) -> None:
    """An hour."""
    rows = np.zeros((1, 4), np.float32).tolist()
    inputs = [{"name": name, "datatype": "FP32", "shape": [1, 4], "data": rows} for name in ("A", "B")]
    order = {"inputs": inputs, "parameters": {"timeout": 2**63}}
    await good(stand.client("harbour").post("/v2/models/adding/infer", json=order))


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs": [{"name": [1], "data": [1]}]}',
        b'{"inputs": {"A": ' + b"[" * 900 + b"1" + b"]" * 900 + b', "B": [[1,1,1,1]]}}',
        b'{"inputs": {"A": {"shape": [1e30], "data": [1]}, "B": [[1,1,1,1]]}}',
        b'{"inputs": {"A": {"shape": [-5, 9223372036854775807], "data": [1]}, "B": [[1,1,1,1]]}}',
        b'{"inputs": {"A": true, "B": [[1,1,1,1]]}}',
        b'{"inputs": {"A": {"a": 1}, "B": {"b": {}}}}',
        b'{"inputs": {"A": 1e999, "B": 1}}',
    ],
)
async def test_odd_predict_tensors_are_refused(stand: Stand, body: bytes) -> None:
    answer = await stand.client("harbour").post("/v1/applications/adding/predict", content=body, headers=JSON)
    assert answer.status_code == 422, answer.text[:500]
    broken = await stand.client("harbour").post(
        "/v1/applications/adding/predict", content=body, headers={"Content-Type": "multipart/form-data; boundary=x"}
    )
    assert broken.status_code == 422, broken.text


async def test_unknown_methods_are_405_with_the_allowed_methods(stand: Stand) -> None:
    """In the shape of the protocol."""
    harbour = stand.client("harbour")
    for method in ("TRACE", "OPTIONS", "CONNECT", "PROPFIND"):
        for path in ("/v1/models", "/v1/tenants/harbour/keys", "/v1/applications/digits/predict", "/docs", "/metrics"):
            answer = await harbour.request(method, path)
            assert refusal(answer) == (405, "method-not-allowed"), path
            assert answer.headers["allow"]
        for path in ("health/live", "models/digits", "models/digits/infer", "repository/index", "models/stats"):
            answer = await harbour.request(method, f"/v2/{path}")
            assert answer.status_code == 405, path
            assert answer.headers["allow"] in ("GET, HEAD", "POST")
            assert answer.json()["error"]
    assert (await harbour.get("/v2/models/digits/infer")).headers["allow"] == "POST"
    assert (await harbour.put("/v1/models")).headers["allow"] == "GET, HEAD, POST"
    assert (await harbour.get("/v2elsewhere")).status_code == 404


async def test_odd_metadata_in_an_archive_fails_its_import_job(stand: Stand) -> None:
    """metadata.json of an archive is read as strictly: the job fails with a sentence."""
    harbour = stand.client("harbour")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("model.onnx", b"\x08\x08")
        archive.writestr("metadata.json", b'{"labels": ["\\ud800"]}')
    form = {"name": "odd", "task": "tensor"}
    job = (await harbour.post("/v1/models", data=form, files={"file": packed.getvalue()})).json()["id"]
    assert "metadata.json is not JSON" in (await job_end(harbour, job))["error"]


async def test_expiring_key_makes_no_key_that_expires_later(stand: Stand) -> None:
    """A key that does not expire makes any."""
    harbour = stand.client("harbour")

    async def made(client: httpx.AsyncClient, **order: Any) -> httpx.Response:
        return await client.post("/v1/tenants/harbour/keys", json=order)

    lent = (await made(harbour, expires_in_s=1000)).json()["key"]
    guest = stand.client(key=lent)
    for order in ({}, {"expires_in_s": 2000}, {"expires_at": "2090-01-01T00:00:00Z"}, {"role": "device"}):
        assert refusal(await made(guest, **order)) == (403, "forbidden")
    assert (await made(guest, expires_in_s=500)).status_code == 201


async def test_device_key_for_an_unknown_application_is_refused(stand: Stand) -> None:
    """Own and shared applications are taken; a wrong name would show in the field only."""
    harbour = stand.client("harbour")
    for names, status in ((["digits", "adding"], 201), (["digits", "digit"], 404)):
        order = {"role": "device", "applications": names}
        assert (await harbour.post("/v1/tenants/harbour/keys", json=order)).status_code == status


async def test_large_order_of_white_space_is_carried_out(stand: Stand) -> None:
    order = json.dumps({"name": "door", "model": "digits"}) + " " * 50_000
    await good(
        stand.client("harbour").post("/v1/applications", content=order, headers={"content-type": "application/json"})
    )
