"""Two tenants who must not see each other."""

import json
import re
from typing import Any

import httpx
import pytest

from appliance.demo.zoo import toys
from tests.api.stand import Stand, job_end, model_form

pytestmark = pytest.mark.anyio

THINGS = ("digits", "nothing-like-it")
"""A name that harbour has, and one that nobody has."""
PROMISE = {"kind": "latency", "slo_ms": 500, "rate_rps": 1}
CALLS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("GET", "/v1/models/{}", None),
    ("DELETE", "/v1/models/{}", None),
    ("GET", "/v1/models/{}/variants", None),
    ("GET", "/v1/models/{}/variants/fp32", None),
    ("DELETE", "/v1/models/{}/variants/fp32", None),
    ("POST", "/v1/models/{}/variants", None),
    ("GET", "/v1/applications/{}", None),
    ("PATCH", "/v1/applications/{}", {"weight": 2}),
    ("DELETE", "/v1/applications/{}", None),
    ("POST", "/v1/applications", {"name": "mine", "model": "{}"}),
    ("POST", "/v1/applications/{}/predict", {"inputs": {}}),
    ("POST", "/v1/applications/{}/predict?variant=fp32&sequence_id=7", {"inputs": {}}),
    ("POST", "/v1/pipelines", {"name": "mine", "latency_slo_ms": 500, "stages": [{"name": "a", "application": "{}"}]}),
    ("POST", "/v1/sessions", {"application": "{}", "fps": 5, "promise": PROMISE}),
    ("POST", "/v1/sessions", {"pipeline": "{}", "fps": 5, "promise": PROMISE}),
    ("GET", "/v2/models/{}", None),
    ("GET", "/v2/models/{}/ready", None),
    ("GET", "/v2/models/{}/stats", None),
    ("GET", "/v2/models/{}/config", None),
    ("GET", "/v2/models/{}/versions/fp32", None),
    ("POST", "/v2/models/{}/infer", {"inputs": []}),
    ("POST", "/v2/repository/models/{}/load", None),
    ("POST", "/v2/repository/models/{}/unload", None),
]


async def twice(
    caller: httpx.AsyncClient, method: str, path: str, names: tuple[str, str], body: dict[str, Any] | None = None
) -> int:
    """The status of two calls that differ by a name, and are answered alike: status, headers and body."""
    answers = []
    for name in names:
        content = None if body is None else json.dumps(body).replace("{}", name)
        headers = {"Upload-Offset": "0"} | ({} if content is None else {"content-type": "application/json"})
        answer = await caller.request(method, path.replace("{}", name), content=content, headers=headers)
        shown = {k: v for k, v in answer.headers.items() if k not in ("x-request-id", "content-length")}
        answers.append((answer.status_code, shown, answer.text.replace(name, "NAME")))
    assert answers[0] == answers[1], (method, path)
    return answers[0][0]


@pytest.mark.parametrize("who", ["museum", "device"])
@pytest.mark.parametrize(("method", "path", "body"), CALLS)
async def test_name_of_another_tenant_answers_like_an_unknown_name(
    stand: Stand, who: str, method: str, path: str, body: dict[str, Any] | None
) -> None:
    """Status, headers and body are the same but for the name itself.

    (For the device, harbour's other names are foreign.)
    """
    if who == "device":
        order = {"name": "secret", "model": "digits"}
        assert (await stand.client("harbour").post("/v1/applications", json=order)).status_code == 201
    things = ("secret", THINGS[1]) if who == "device" else THINGS
    status = await twice(stand.client(who), method, path, things, body)
    assert status in ((404, 403) if who == "device" else (404,))


async def test_ids_of_another_tenant_answer_like_unknown_ids(stand: Stand) -> None:
    """Jobs, uploads and keys; knowing an id does not help either."""
    harbour, museum = stand.client("harbour"), stand.client("museum")
    job = (await harbour.get("/v1/jobs")).json()["items"][0]["id"]
    upload = (await harbour.post("/v1/uploads", json={})).json()["id"]
    key = (await harbour.get("/v1/tenants/harbour/keys")).json()["items"][0]["id"]
    for method, path, real in (
        ("GET", "/v1/jobs/{}", job),
        ("GET", "/v1/jobs/{}/events", job),
        ("GET", "/v1/uploads/{}", upload),
        ("PATCH", "/v1/uploads/{}", upload),
        ("HEAD", "/v1/uploads/{}", upload),
        ("DELETE", "/v1/uploads/{}", upload),
        ("DELETE", "/v1/tenants/museum/keys/{}", key),
    ):
        assert await twice(museum, method, path, (real, "0" * len(real))) == 404
    form = {"name": (None, "mine"), "task": (None, "tensor"), "upload": (None, upload)}
    assert (await museum.post("/v1/models", files=form)).status_code == 404
    assert (await harbour.get(f"/v1/uploads/{upload}")).status_code == 200


async def test_tenant_routes_of_another_tenant_answer_like_unknown_tenants(stand: Stand) -> None:
    """Neither the tenant nor its keys can be told from those of a tenant that does not exist."""
    museum = stand.client("museum")
    for method, path in (
        ("GET", "/v1/tenants/{}"),
        ("GET", "/v1/tenants/{}/keys"),
        ("POST", "/v1/tenants/{}/keys"),
        ("DELETE", "/v1/tenants/{}/keys/0123"),
    ):
        assert await twice(museum, method, path, ("harbour", "nobody"), {"label": "x"}) == 404


async def test_lists_and_documents_never_name_another_tenant(stand: Stand, digits: toys.Digits) -> None:
    """Everything that museum can read, read: harbour and its things are in none of it."""
    museum, harbour = stand.client("museum"), stand.client("harbour")
    await job_end(museum, (await museum.post("/v1/models", **model_form(digits, "own"))).json()["id"])
    picture = next(digits.evaluation.glob("*.png")).read_bytes()
    assert (await harbour.post("/v1/applications/digits/predict", content=picture)).status_code == 200
    assert (await museum.post("/v1/applications/own/predict", content=picture)).status_code == 200
    for path in (
        "/v1/models",
        "/v1/models/own",
        "/v1/applications",
        "/v1/jobs",
        "/v1/uploads",
        "/v1/tenants",
        "/v1/tenants/museum/keys",
        "/v1/system",
        "/v1/memory",
        "/v1/processors",
        "/metrics",
        "/v2/models/stats",
    ):
        answer = await museum.get(path)
        assert answer.status_code == 200, path
        assert not re.search(r"harbour|\bdigits\b", answer.text), (path, answer.text)
    index = await museum.post("/v2/repository/index")
    assert not re.search(r"harbour|\bdigits\b", index.text)


async def test_shared_application_of_another_tenant_is_read_only(stand: Stand) -> None:
    """Another tenant sees and calls the application; to change it is refused, with the same status in every
    protocol.
    """
    museum = stand.client("museum")
    assert (await museum.get("/v1/models/adding")).json()["tenant"] == "default"
    for method, path, body in (
        ("PATCH", "/v1/applications/adding", {"weight": 2}),
        ("DELETE", "/v1/applications/adding", None),
        ("DELETE", "/v1/models/adding", None),
        ("DELETE", "/v1/models/adding/variants/fp32", None),
        ("POST", "/v1/models/adding/variants", {}),
        ("POST", "/v2/repository/models/adding/load", {}),
        ("POST", "/v2/repository/models/adding/unload", {}),
    ):
        assert (await museum.request(method, path, json=body)).status_code == 403, (method, path)
    for path in ("/v1/applications/adding", "/v2/models/adding", "/v2/models/adding/ready"):
        assert (await museum.get(path)).status_code == 200, path


async def test_routes_without_a_key_are_refused(stand: Stand) -> None:
    """Every documented route but health, documents and their like."""
    nobody = stand.client(None)
    document = (await nobody.get("/openapi.json")).json()
    open_paths = {"/v2", "/v2/health/live", "/v2/health/ready", "/v1/sign-in"}
    tried = 0
    for path, operations in document["paths"].items():
        for method in (
            set(operations) & {"get", "post", "put", "patch", "delete", "head"} if path not in open_paths else ()
        ):
            answer = await nobody.request(
                method.upper(), re.sub(r"{\w+}", "digits", path), headers={"Upload-Offset": "0"}
            )
            body = {} if answer.status_code == 401 else answer.text
            assert answer.status_code in (401, 422), (method, path, body)
            tried += 1
    assert tried > 30
