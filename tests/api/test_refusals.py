"""Requests that are refused by one answer: who sends what, and what the answer says."""

from typing import Any

import pytest

from tests.api.stand import Stand
from tests.api.v1.joining import LATENCY, order

pytestmark = pytest.mark.anyio

WRONG = (422, "invalid-request")
FORBIDDEN = (403, "forbidden")
Row = tuple[Any, tuple[int, str], str]
"""What is sent (bytes: as they are), status and type of the answer, and what it names."""


def field(name: str) -> str:
    """How a problem names it."""
    return f"'field': '{name}'"


def wrong(values: dict[str, list[Any]], **beside: Any) -> list[Row]:
    """Each of these values is wrong, and named by its key; what stands `beside` it is good."""
    return [(beside | {name: value}, WRONG, name) for name, wrong in values.items() for value in wrong]


def large(body: str, named: str) -> Row:
    return body.encode(), WRONG, named


APPLICATION = {"name": "x", "model": "digits"}
APPLICATIONS: list[Row] = [
    (APPLICATION | {"name": "No"}, (422, "bad-name"), ""),
    (APPLICATION | {"name": "digits"}, (409, "already-exists"), ""),
    (APPLICATION | {"model": "nothing"}, (404, "unknown-model"), ""),
    (APPLICATION | {"accuracy_min": 2}, WRONG, field("accuracy_min")),
    (APPLICATION | {"latency_slo_ms": 0}, WRONG, field("latency_slo_ms")),
    (APPLICATION | {"latency_slo_ms": 1e303}, WRONG, field("latency_slo_ms")),
    (APPLICATION | {"weight": 1e308}, WRONG, field("weight")),
    (APPLICATION | {"latency_slo": 5}, WRONG, field("latency_slo")),
    ({"name": "x"}, WRONG, field("model")),
    *wrong({"weight": [True], "shared": [1, "yes"]}, **APPLICATION),
    # Large orders are read in a media thread, and answered as small ones are.
    large(str({str(number): number for number in range(60_000)}).replace("'", '"'), "more than 25000 names"),
    large(str({str(number): number for number in range(6_000)}).replace("'", '"'), "more than 1000 names"),
    (APPLICATION | {"latency_slo_ms": [{"a": 1}] * 15_000}, WRONG, "latency_slo_ms"),
    large("[" + "1," * 400_000 + "1]", "more than 100000 values"),
    large('{"name": "' + "a" * 20_000, "no JSON"),
    *(
        large(f'{{"name": "x", "model": "digits", "{name}": {endless}}}', field("body"))
        for name in ("latency_slo_ms", "weight")
        for endless in ("Infinity", "NaN", "1e999")
    ),
]
CHANGES = [
    large(f'{{"{name}": {endless}}}', field("body"))
    for name in ("latency_slo_ms", "weight")
    for endless in ("Infinity", "NaN", "1e999")
]
TENANTS: list[Row] = [
    ({"name": "x", "quota": {"requests_per_s": True}}, WRONG, "requests_per_s"),
    *(({"name": "x", "quota": {"stored_bytes": wrong}}, WRONG, "stored_bytes") for wrong in (True, "5", 10**30)),
    (None, WRONG, ""),
    large("{", ""),
    (b"\x80", WRONG, ""),
]
EXPIRIES = ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2090-01-01T00:00:00", 10**18]
KEYS: list[Row] = [
    *wrong({"expires_in_s": [True, -5], "expires_at": EXPIRIES}),
    *wrong({"role": ["king"], "rights": ["all"]}),
    ({"expires_at": "2020-01-01T00:00:00Z"}, (422, "bad-metadata"), "expires_at: lies in the past"),
    ({"applications": ["digits"]}, (422, "bad-metadata"), "applications: only device keys"),
    ({"role": "admin"}, FORBIDDEN, ""),  # a tenant makes no admin keys
]
UPLOADS: list[Row] = [
    *wrong({"length": [True, 10**30, 2**60, -1], "sha256": ["abc"], "size": [5]}),
    ({"length": 2**50}, (413, "too-large"), ""),
    ({"x" * 100_000: 1}, WRONG, ""),
]
PROMISES: list[Row] = [
    (LATENCY | {"rate_rps": 1e-310}, WRONG, "rate_rps"),
    (LATENCY | {"slo_ms": 0.5}, WRONG, "slo_ms"),
    (LATENCY | {"rate_rps": -1}, WRONG, "rate_rps"),
    ({"kind": "accuracy", "drop_max": 0}, WRONG, "drop_max"),
    ({"kind": "accuracy", "drop_max": 0.1, "slo_ms": 3}, WRONG, "slo_ms"),
    ({"kind": "luck"}, WRONG, "promise.kind: must be one of 'latency', 'accuracy'"),
    ({"slo_ms": 100, "rate_rps": 10}, WRONG, "promise.kind: is missing"),
]
SESSIONS: list[Row] = [
    *wrong({"fps": [0, 1001, 1e-307]}, **order(LATENCY)),
    (order(LATENCY) | {"pipeline": "signs"}, WRONG, "pipeline: either an application or a pipeline"),
    *((order(promise), problem, named) for promise, problem, named in PROMISES),
    # JSON of other makers has NaN.
    large('{"application": "digits", "fps": 30, "promise": {"kind": "latency", "slo_ms": NaN, "rate_rps": 10}}', ""),
]
PIPELINE = {"kind": "pipeline", "pipeline": "one", "tenant": "harbour"}
RATE = {"kind": "rate", "application": "digits", "tenant": "harbour", "more_rps": 20.0}
EDITS: dict[str, list[Any]] = {
    "times": [-1],
    "more_clients": [300, 1.5],
    "client_fps": [0],
    "latency_slo_ms": [0],
    "cost_by": ["luck"],
}
SIMULATIONS: list[Row] = [({"edits": [edit]}, problem, named) for edit, problem, named in wrong(EDITS, **PIPELINE)]


@pytest.mark.parametrize(
    ("who", "call", "rows"),
    [
        ("harbour", "POST /v1/applications", APPLICATIONS),
        ("harbour", "PATCH /v1/applications/digits", CHANGES),
        ("admin", "POST /v1/tenants", TENANTS),
        ("harbour", "POST /v1/tenants/harbour/keys", KEYS),
        ("harbour", "POST /v1/uploads", UPLOADS),
        ("device", "POST /v1/sessions", SESSIONS),
        ("admin", "POST /v1/simulations", SIMULATIONS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_order_that_is_wrong_is_refused_shortly_with_its_problem(
    stand: Stand, who: str, call: str, rows: list[Row]
) -> None:
    """Status, type and what is wrong; nothing comes back at length."""
    client, json = stand.client(who), {"Content-Type": "application/json"}
    for body, problem, named in rows:
        sent: dict[str, Any] = {"content": body, "headers": json} if isinstance(body, bytes) else {"json": body}
        answer = await client.request(*call.split(), **sent)
        assert_refused(answer, problem, named)


def assert_refused(answer: Any, problem: tuple[int, str], named: str = "") -> None:
    told = answer.json()
    assert (answer.status_code, told["type"]) == (problem[0], f"/problems/{problem[1]}"), answer.text
    assert (told["status"], answer.headers["content-type"]) == (problem[0], "application/problem+json")
    assert named in str(told)
    assert len(answer.content) < 4000


BODIES: dict[str, Any] = {
    "POST /v1/tenants": {"name": "x"},
    "PUT /v1/tenants/harbour": {"quota": {}},
    "POST /v1/simulations": {"edits": [RATE]},
}
MANAGEMENT = ("jobs", "memory", "models", "models/digits", "processors", "sensors", "settings", "system")


@pytest.mark.parametrize(
    ("who", "calls", "problem"),
    [
        ("probe", [f"GET /v1/{path}" for path in (*MANAGEMENT, "tenants", "uploads")], FORBIDDEN),
        ("probe", ["POST /v1/models", "GET /v1/tenants/harbour/keys"], FORBIDDEN),
        ("device", ["GET /v1/decisions", "GET /v1/events", "GET /v1/simulations"], FORBIDDEN),
        ("device", ["POST /v1/simulations"], FORBIDDEN),
        ("harbour", ["GET /v1/simulations", "POST /v1/simulations"], FORBIDDEN),
        ("harbour", ["POST /v1/tenants", "PUT /v1/tenants/harbour", "DELETE /v1/tenants/harbour"], FORBIDDEN),
        ("admin", ["DELETE /v1/tenants/harbour", "DELETE /v1/tenants/default"], (409, "in-use")),
        ("admin", [f"GET /v1/events?kinds=variant&kinds={kind}" for kind in ("", "a" * 61, "two%0Alines")], WRONG),
        ("admin", [f"GET /v1/models?{query}" for query in ("limit=0", "limit=abc", "tenant=", "tenant=museum")], WRONG),
        ("admin", ["GET /v1/models?tenant=**"], WRONG),
        ("admin", ["GET /v1/nothing", "GET /v1/models/"], (404, "no-such-path")),
        ("admin", ["PUT /v1/models"], (405, "method-not-allowed")),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value[0])[:40],
)
async def test_call_that_is_wrong_or_not_allowed_is_refused(
    stand: Stand, who: str, calls: list[str], problem: tuple[int, str]
) -> None:
    for call in calls:
        answer = await stand.client(who).request(*call.split(), json=BODIES.get(call))
        assert_refused(answer, problem, "kinds" if "kinds" in call else "")
