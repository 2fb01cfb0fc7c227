"""Hostile requests: who asks what, and the status that the answer has. `KILLERS` are those that kill a process
which runs uploaded graphs; they need the models of `tests/attacks/killers.py` under their names.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LONG = "x" * 2**20
DIGITS = "9" * 4300
DEEP = "[" * 10_000
HALF = "\\ud800"
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "multipart/form-data; boundary=b"}
INFER = "/v2/models/door/infer"
AHEAD = "Inference-Header-Content-Length"


@dataclass(frozen=True)
class Attack:
    """One call; `statuses` are those that are right."""

    name: str
    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    role: str = "tenant"
    statuses: tuple[int, ...] = (422,)


def _orders() -> list[Attack]:
    """One odd body for each route that takes JSON."""
    bodies = {
        "deep": DEEP,
        "half-pair": f'{{"name": "{HALF}", "label": "{HALF}", "file_name": "{HALF}", "model": "{HALF}"}}',
        "nul": '{"name": "\\u0000", "label": "\\u0000", "file_name": "\\u0000", "model": "\\u0000"}',
        "endless": '{"expires_in_s": 1e999, "length": 1e999, "weight": 1e999}',
        "digits": f'{{"length": {DIGITS}}}',
        "nan": '{"weight": NaN, "expires_in_s": NaN}',
        "list": "[]",
        "text": '"x"',
        "null": "null",
        "nothing": "",
        "unfinished": '{"name": ',
        "long-field": f'{{"{LONG[:100_000]}": 1}}',
        "no-utf8": "\xff\xfe",
    }
    routes = {
        "tenant": ("POST", "/v1/tenants", "admin"),
        "quota": ("PUT", "/v1/tenants/harbour", "admin"),
        "key": ("POST", "/v1/tenants/harbour/keys", "tenant"),
        "application": ("POST", "/v1/applications", "tenant"),
        "change": ("PATCH", "/v1/applications/door", "tenant"),
        "upload": ("POST", "/v1/uploads", "tenant"),
        "pipeline": ("POST", "/v1/pipelines", "tenant"),
        "pipeline-change": ("PATCH", "/v1/pipelines/signs", "tenant"),
        "client": ("POST", "/v1/pipelines/signs/clients", "device"),
        "session": ("POST", "/v1/sessions", "device"),
        "session-change": ("PATCH", "/v1/sessions/x", "device"),
    }
    return [
        Attack(f"{route}-{kind}", method, path, body.encode("latin-1"), JSON, role)
        for route, (method, path, role) in routes.items()
        for kind, body in bodies.items()
    ]


def _typed() -> list[Attack]:
    """Values of the wrong kind."""
    values: dict[str, tuple[str, Any]] = {
        "true-as-length": ("/v1/uploads", {"length": True}),
        "text-as-length": ("/v1/uploads", {"length": "5"}),
        "half-as-length": ("/v1/uploads", {"length": 0.5}),
        "length-below-zero": ("/v1/uploads", {"length": -1}),
        "sum-of-another-length": ("/v1/uploads", {"sha256": "ab"}),
        "true-as-time": ("/v1/tenants/harbour/keys", {"expires_in_s": True}),
        "time-before-the-calendar": ("/v1/tenants/harbour/keys", {"expires_at": "0001-01-01T00:00:00+23:59"}),
        "time-after-the-calendar": ("/v1/tenants/harbour/keys", {"expires_at": "9999-12-31T23:59:59-23:59"}),
        "time-without-zone": ("/v1/tenants/harbour/keys", {"expires_at": "2090-01-01T00:00:00"}),
        "time-passed": ("/v1/tenants/harbour/keys", {"expires_at": "1990-01-01T00:00:00Z"}),
        "role-unknown": ("/v1/tenants/harbour/keys", {"role": "root"}),
        "applications-of-a-tenant-key": ("/v1/tenants/harbour/keys", {"applications": ["door"]}),
        "too-many-applications": ("/v1/tenants/harbour/keys", {"role": "device", "applications": ["door"] * 300}),
        "one-as-shared": ("/v1/applications", {"name": "x", "model": "centerface", "shared": 1}),
        "weight-zero": ("/v1/applications", {"name": "x", "model": "centerface", "weight": 0}),
        "name-in-capitals": ("/v1/applications", {"name": "X", "model": "centerface"}),
        "name-of-a-megabyte": ("/v1/applications", {"name": LONG[:900_000], "model": "centerface"}),
        "name-like-a-path": ("/v1/applications", {"name": "../x", "model": "centerface"}),
    }
    return [Attack(name, "POST", path, json.dumps(body).encode(), JSON) for name, (path, body) in values.items()]


def _streams() -> list[Attack]:
    """Pipelines and sessions with numbers and graphs that nobody means."""
    ask = '{"name": "a", "application": "door"}'
    crop = '{"name": "c", "do": "crop", "of": "objects", "after": ["a"]'
    stages = {
        "one-stage": f"[{ask}]",
        "no-stage": "[]",
        "five-thousand-stages": "[" + ",".join([ask] * 5000) + "]",
        "stages-in-a-circle": '[{"name": "a", "application": "door", "after": ["a"]}]',
        "stage-of-a-long-sort": f'[{{"name": "a", "do": "{LONG[:100_000]}"}}]',
        "at-most-nobody": '[{"name": "a", "application": "door", "at_most": 0}]',
        "at-most-everybody": f'[{{"name": "a", "application": "door", "at_most": {DIGITS}}}]',
        "best-of-none": f'[{ask}, {crop}}}, {{"name": "p", "do": "pick", "best": 0, "after": ["c"]}}]',
        "accuracy-nan": '[{"name": "a", "application": "door", "accuracy_min": NaN}]',
        "size-endless": f'[{ask}, {crop}, "where": {{"size_min": 1e999}}}}]',
        "deep-stages": DEEP,
    }
    odd = ("NaN", "1e308", "-1e308", "1e999", "0", "-1", "true", '"1"', "[]", DIGITS)
    bodies = {
        f"pipeline-{name}": ("/v1/pipelines", f'{{"name": "q", "latency_slo_ms": {slo}, "stages": {given}}}')
        for name, given in stages.items()
        for slo in (("NaN",) if name == "one-stage" else ("100",))
    }
    promise = '{"kind": "latency", "slo_ms": %s, "rate_rps": %s}'
    for at, number in enumerate(odd):
        bodies |= {
            f"pipeline-slo-{at}": ("/v1/pipelines", f'{{"name": "q", "latency_slo_ms": {number}, "stages": [{ask}]}}'),
            f"client-fps-{at}": ("/v1/pipelines/signs/clients", f'{{"fps": {number}}}'),
            f"session-slo-{at}": (
                "/v1/sessions",
                f'{{"pipeline": "signs", "fps": 5, "promise": {promise % (number, "1")}}}',
            ),
            f"session-rate-{at}": (
                "/v1/sessions",
                f'{{"application": "door", "fps": 5, "promise": {promise % ("100", number)}}}',
            ),
        }
    return [Attack(name, "POST", path, body.encode(), JSON) for name, (path, body) in bodies.items()]


def _infer(name: str, statuses: tuple[int, ...] = (400,), **changed: Any) -> Attack:
    inputs = [{"name": each, "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]} for each in "AB"]
    body = json.dumps({"inputs": inputs} | changed).encode()
    return Attack(f"infer-{name}", "POST", "/v2/models/door/infer", body, JSON, "device", statuses)


def _one(**changed: Any) -> list[dict[str, Any]]:
    return [{"name": "A", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]} | changed]


INFERS = (
    _infer("no-inputs", inputs=[]),
    _infer("inputs-object", inputs={"A": 1}),
    _infer("name-of-a-megabyte", inputs=_one(name=LONG)),
    _infer("datatype-of-a-megabyte", inputs=_one(datatype=LONG)),
    _infer("name-with-nul", inputs=_one(name="\0")),
    _infer("true-in-shape", inputs=_one(shape=[True, 4])),
    _infer("shape-below-zero", inputs=_one(shape=[-1, 4])),
    _infer("shape-beyond-64-bits", inputs=_one(shape=[2**63, 4])),
    _infer("shape-overflow", inputs=_one(shape=[2**62, 2**62, 0], data=[])),
    _infer("shape-of-100-dimensions", inputs=_one(shape=[1] * 100, data=[1])),
    _infer("too-few-values", inputs=_one(data=[1])),
    _infer("ragged-values", inputs=_one(data=[[1, 2], [3]])),
    _infer("text-values", inputs=_one(data=["a", "b", "c", "d"])),
    _infer("null-values", inputs=_one(data=[None] * 4)),
    _infer("deep-values", inputs=_one(data=json.loads("[" * 900 + "1" + "]" * 900))),
    _infer("binary-that-is-not-there", inputs=_one(parameters={"binary_data_size": 16})),
    _infer("binary-below-zero", inputs=_one(parameters={"binary_data_size": -16})),
    _infer("binary-true", inputs=_one(parameters={"binary_data_size": True})),
    _infer("twice", inputs=_one() * 2),
    _infer("unknown-input", inputs=_one(name="Z")),
    _infer("brain-float", inputs=_one(datatype="BF16")),
    _infer("timeout-true", parameters={"timeout": True}),
    _infer("timeout-below-zero", parameters={"timeout": -1}),
    _infer("timeout-without-end", (200,), parameters={"timeout": 2**63}),
    _infer("priority-true", parameters={"priority": True}),
    _infer("priority-huge", (200,), parameters={"priority": 2**63}),
    _infer("sequence-of-a-megabyte", parameters={"sequence_id": LONG}),
    _infer("parameters-list", parameters=[1]),
    _infer("id-object", id={}),
    _infer("output-unknown", outputs=[{"name": "ghost"}]),
    _infer("output-of-a-megabyte", outputs=[{"name": LONG}]),
    _infer("outputs-number", outputs=5),
)
HEADERS = tuple(
    Attack(f"header-{name}", method, path, b"x", headers, role, statuses)
    for name, method, path, headers, role, statuses in (
        ("json-length-digits", "POST", INFER, {AHEAD: DIGITS}, "device", (400,)),
        ("json-length-below", "POST", INFER, {AHEAD: "-1"}, "device", (400,)),
        ("json-length-beyond", "POST", INFER, {AHEAD: "99"}, "device", (400,)),
        ("json-length-superscript", "POST", INFER, {AHEAD: "²"}, "device", (400,)),
        ("offset-digits", "PATCH", "/v1/uploads/none", {"Upload-Offset": DIGITS}, "tenant", (404, 422)),
        ("offset-superscript", "PATCH", "/v1/uploads/none", {"Upload-Offset": "²"}, "tenant", (422,)),
        ("offset-missing", "PATCH", "/v1/uploads/none", {}, "tenant", (422,)),
        ("tenant-odd", "POST", "/v2/repository/index", {"X-Tenant": "²\x9b"}, "admin", (404,)),
        ("tenant-of-another", "POST", "/v2/repository/index", {"X-Tenant": "default"}, "tenant", (403,)),
        ("request-id-odd", "POST", "/v1/uploads", {"X-Request-Id": "²" * 500}, "tenant", (422,)),
        ("form-without-boundary", "POST", "/v1/models", {"Content-Type": "multipart/form-data"}, "tenant", (422,)),
        ("form-broken", "POST", "/v1/models", FORM, "tenant", (422,)),
        ("form-of-a-device", "POST", "/v1/models", FORM, "device", (403,)),
        ("media-form-broken", "POST", "/v1/applications/door/predict", FORM, "device", (422,)),
    )
)
PATHS = tuple(
    Attack(f"path-{name}", method, path, role=role, statuses=statuses)
    for name, method, path, role, statuses in (
        ("nul", "GET", "/v1/models/%00", "tenant", (404,)),
        ("half-pair", "GET", "/v1/models/%ED%A0%80", "tenant", (404,)),
        ("no-utf8", "GET", "/v1/applications/%FF", "device", (404,)),
        ("long", "GET", "/v1/models/" + "x" * 10_000, "tenant", (404,)),
        ("above", "GET", "/v1/models/..%2f..%2fetc%2fpasswd", "tenant", (404,)),
        ("cursor-nul", "GET", "/v1/models?cursor=%00", "tenant", (200,)),
        ("cursor-long", "GET", "/v1/models?cursor=" + "x" * 201, "tenant", (422,)),
        ("limit-digits", "GET", "/v1/models?limit=" + DIGITS, "tenant", (422,)),
        ("limit-superscript", "GET", "/v1/models?limit=%C2%B2", "tenant", (422,)),
        ("decision-huge", "GET", "/v1/decisions/" + "9" * 30, "tenant", (422,)),
        ("decision-cursor", "GET", "/v1/decisions?cursor=%C2%B2", "tenant", (422,)),
        ("version-superscript", "GET", "/v2/models/door/versions/%C2%B2", "device", (404,)),
        ("timeout-nan", "POST", "/v1/applications/door/predict?timeout_ms=nan", "device", (422,)),
        ("timeout-endless", "POST", "/v1/applications/door/predict?timeout_ms=1e999", "device", (422,)),
        ("trace-v1", "TRACE", "/v1/models", "tenant", (405,)),
        ("trace-v2", "TRACE", "/v2/models/door/infer", "device", (405,)),
        ("put-v2", "PUT", "/v2/models/door", "device", (405,)),
        ("no-key", "GET", "/v1/models", "stranger", (401,)),
        ("no-key-infer", "POST", "/v2/models/door/infer", "stranger", (401,)),
        ("device-manages", "GET", "/v1/models", "device", (403,)),
        ("device-makes-keys", "GET", "/v1/tenants/harbour/keys", "device", (403,)),
        ("tenant-looks-elsewhere", "GET", "/v1/tenants/default/keys", "tenant", (404,)),
        ("tenant-makes-tenants", "DELETE", "/v1/tenants/default", "tenant", (403,)),
        ("admin-deletes-the-default", "DELETE", "/v1/tenants/default", "admin", (409,)),
    )
)
REQUESTS: tuple[Attack, ...] = (*_orders(), *_typed(), *_streams(), *INFERS, *HEADERS, *PATHS)


def _killer(name: str, *tensors: tuple[str, str, list[int], list[float]]) -> Attack:
    inputs = [{"name": each, "datatype": word, "shape": shape, "data": data} for each, word, shape, data in tensors]
    body = json.dumps({"inputs": inputs}).encode()
    return Attack(name, "POST", f"/v2/models/{name}/infer", body, JSON, statuses=_KILLED)


_KILLED = (400, 422, 500, 503, 504)
"""Refused before it runs, broken off, or of a variant that is quarantined by now."""
KILLERS = (
    _killer("division", ("X", "INT32", [1], [-(2**31)]), ("Y", "INT32", [1], [-1])),
    _killer("lstm", ("X", "FP32", [1, 0, 3], [])),
    _killer("outer", ("X", "FP32", [45_000, 1], [1.0] * 45_000)),
    _killer("loop", ("N", "INT64", [1], [10**12])),
    Attack("words", "POST", "/v1/applications/words/predict", b'{"text": "aa"}', JSON, statuses=_KILLED),
)
