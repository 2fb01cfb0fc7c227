"""The Open Inference Protocol (KServe v2) as one bare ASGI application: the hot path carries no framework.

The model name is the application, the version is the variant; without a version the box chooses. Errors have the protocol's own shape,
`{"error": "..."}`, with the status of the same error everywhere else, except that an unavailable model answers 400 as clients expect.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from appliance import __version__
from appliance.api.box import Box
from appliance.api.exchange import EXCHANGE, Exchange
from appliance.api.keyring import Principal
from appliance.api.limits import Receive, Scope, Send
from appliance.api.problems import headers_of, status_of
from appliance.api.tensors import Body, InferCall, encode_infer, parse_infer
from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.access import Role
from appliance.domain.catalogue import Application, Variant
from appliance.domain.errors import (
    ApplianceError,
    BadTensor,
    Forbidden,
    ModelUnavailable,
    NotFound,
    TooLarge,
    UnknownApplication,
    UnknownVariant,
)
from appliance.domain.request import Request, Result
from appliance.runtime.telemetry import Histogram, Statistics

EXTENSIONS = ("binary_tensor_data", "model_repository", "statistics", "sequence", "schedule_policy")
Answer = tuple[int, list[tuple[bytes, bytes]], bytes]
"""Status, headers and body."""
_JSON = (b"content-type", b"application/json")
_BINARY = (b"content-type", b"application/octet-stream")
_NS_PER_US = 1000
_PRIORITY_LEVELS = 64


class V2:
    """Answers everything below `/v2`."""

    def __init__(self, box: Callable[[], Box]) -> None:
        self._find_box = box

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request of ASGI type `http`."""
        exchange: Exchange | None = scope.pop(EXCHANGE, None)
        try:
            if exchange is None:
                status, headers, body = await self._answer(scope, dict(scope["headers"]), receive)
            else:
                status, headers, body = await self._answer(scope, exchange.headers, exchange.receive)
        except Exception as error:
            status, headers, body = self._failed(scope, error)
        headers.append((b"content-length", b"%d" % len(body)))
        if exchange is not None and scope["method"] == "POST" and exchange.answer(status, headers, body):
            return
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def answer_at_once(self, scope: Scope) -> Callable[[], None] | None:
        """Compute the answer to a plain infer request of a quick model, whose whole body has come, without a task; what is returned writes it.

        None, and nothing is done, for any other request.
        """
        exchange: Exchange = scope[EXCHANGE]
        parts = _parts(scope)
        if parts[:1] != ["models"] or parts[-1] != "infer" or scope["method"] != "POST" or not exchange.can_answer:
            return None
        box = self._find_box()
        try:
            principal = _authenticate(box, scope, exchange.headers)
            answer = _infer_at_once(box, principal, parts, exchange.headers, exchange.body())
        except Exception as error:  # final: to ask again would count a wrong key twice
            answer = self._failed(scope, error)
        if answer is None:
            return None
        del scope[EXCHANGE]
        status, headers, body = answer
        headers.append((b"content-length", b"%d" % len(body)))
        return exchange.end(status, headers, body)

    def _failed(self, scope: Scope, error: Exception) -> Answer:
        if not isinstance(error, ApplianceError):
            self._find_box().logger.exception("request failed", path=scope["path"])
        return _error(error)

    async def _answer(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive) -> Answer:
        parts = _parts(scope)
        method: str = scope["method"]
        box = self._find_box()
        if not parts or parts[0] == "health":
            return self._health(box, parts)
        principal = _authenticate(box, scope, headers)
        if parts[0] == "models" and parts[-1] == "infer" and method == "POST":
            return await _infer(box, principal, parts, headers, receive)
        body = await _body(receive, _content_length(headers), box.body_bytes_max) if method == "POST" else b""
        found = _route(parts, method)
        if found is None:
            raise NotFound(name=scope["path"])
        return _json(await found(box, principal, parts, _parameters(body)))

    def _health(self, box: Box, parts: list[str]) -> Answer:
        """Open to everyone: probes have no key."""
        if not parts:
            return _json({"name": "edge-appliance", "version": __version__, "extensions": EXTENSIONS})
        if parts == ["health", "live"]:
            return _json({"live": True})
        if parts == ["health", "ready"]:
            return _json({"ready": box.is_ready()}, 200 if box.is_ready() else 503)
        raise NotFound(name="/".join(parts))


# -- infer -------------------------------------------------------------------------------------------------------------


async def _infer(
    box: Box, principal: Principal, parts: list[str], headers: Mapping[bytes, bytes], receive: Receive
) -> Answer:
    name, version = _model_and_version(parts[:-1])
    application = _resolve(box, principal, name)
    arrival_ns = box.clock.now_ns()
    held = _content_length(headers)
    box.in_flight.take(held)
    try:
        body = await _body(receive, held, box.body_bytes_max)
        call = parse_infer(body, _json_length(headers))
        result = await box.engine.infer(_request(application, principal, version, call, arrival_ns))
    finally:
        box.in_flight.give(held)
    return _encoded(call, name, result)


def _infer_at_once(
    box: Box, principal: Principal, parts: list[str], headers: Mapping[bytes, bytes], body: Body
) -> Answer | None:
    """None: the request must take the longer way."""
    name, version = _model_and_version(parts[:-1])
    application = _resolve(box, principal, name)
    if len(body) > box.body_bytes_max or not box.engine.is_quick(application):
        return None
    arrival_ns = box.clock.now_ns()
    call = parse_infer(body, _json_length(headers))
    result = box.engine.infer_at_once(_request(application, principal, version, call, arrival_ns))
    return None if result is None else _encoded(call, name, result)


def _request(
    application: Application, principal: Principal, version: str | None, call: InferCall, arrival_ns: int
) -> Request:
    request = Request(application.id, principal.tenant, call.inputs, arrival_ns, variant=version, outputs=call.outputs)
    if call.parameters:
        _apply(call.parameters, request)
    return request


def _encoded(call: InferCall, name: str, result: Result) -> Answer:
    text, json_length = encode_infer(call, result.outputs, name, result.variant)
    timing = (b"server-timing", _timing(result))
    if json_length is None:
        return 200, [_JSON, timing], text
    return 200, [_BINARY, (b"inference-header-content-length", b"%d" % json_length), timing], text


def _timing(result: Result) -> bytes:
    """Warm or cold, and where the time inside the box went, ms, in the words of the header `Server-Timing`."""
    parts = (result.queue_ns / NS_PER_MS, result.load_ns / NS_PER_MS, result.compute_ns / NS_PER_MS)
    return (b"warm, " if result.warm else b"cold, ") + b"queue;dur=%.3f, load;dur=%.3f, compute;dur=%.3f" % parts


def _apply(parameters: Mapping[str, Any], request: Request) -> None:
    """Per-request parameters: `timeout` in microseconds, `priority` (1 = most urgent, 0 = none stated), and the sequence extension."""
    timeout, priority = parameters.get("timeout"), parameters.get("priority")
    if timeout is not None:
        if not isinstance(timeout, int) or timeout < 0:
            raise BadTensor(reason="parameters.timeout: must be a whole number of microseconds")
        if timeout:
            request.deadline_ns = request.arrival_ns + timeout * _NS_PER_US
    if priority is not None:
        if not isinstance(priority, int) or priority < 0:
            raise BadTensor(reason="parameters.priority: must be a whole number ≥ 0 (1 is the most urgent)")
        request.priority = max(_PRIORITY_LEVELS - priority, 0) if priority else 0
    sequence = parameters.get("sequence_id")
    if sequence not in (None, 0, ""):
        if not isinstance(sequence, int | str) or len(str(sequence)) > 128:
            raise BadTensor(reason="parameters.sequence_id: must be a number or a string of at most 128 characters")
        request.sequence_id = str(sequence)
        request.sequence_start = parameters.get("sequence_start") is True
        request.sequence_end = parameters.get("sequence_end") is True


# -- metadata, repository, statistics ----------------------------------------------------------------------------------

_Handler = Callable[[Box, Principal, list[str], Mapping[str, Any]], Awaitable[Any]]


def _route(parts: list[str], method: str) -> _Handler | None:
    """The protocol's management calls; infer and health are handled before."""
    if method == "GET":
        if parts == ["models", "stats"]:
            return _all_statistics
        if parts[0] == "models" and parts[-1] == "ready":
            return _model_ready
        if parts[0] == "models" and parts[-1] == "stats":
            return _statistics
        if parts[0] == "models" and parts[-1] == "config":
            return _config
        if parts[0] == "models":
            return _metadata
    elif method == "POST":
        if parts == ["repository", "index"]:
            return _index
        if parts[:2] == ["repository", "models"] and len(parts) == 4:
            return {"load": _load, "unload": _unload}.get(parts[3])
    return None


async def _metadata(box: Box, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    name, version = _model_and_version(parts)
    application = _resolve(box, principal, name)
    variant = _variant(box, application, version)
    entry = box.catalogue.entry(application.id)
    return {
        "name": name,
        "versions": sorted(entry.servables),
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": t.name, "datatype": t.datatype, "shape": t.shape} for t in variant.inputs],
        "outputs": [{"name": t.name, "datatype": t.datatype, "shape": t.shape} for t in variant.outputs],
    }


async def _config(box: Box, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    name, version = _model_and_version(parts[:-1])
    application = _resolve(box, principal, name)
    variant = _variant(box, application, version)
    return {
        "name": name,
        "platform": "onnxruntime_onnx",
        "backend": "onnxruntime",
        "max_batch_size": 0,
        "input": [{"name": t.name, "data_type": f"TYPE_{t.datatype}", "dims": t.shape} for t in variant.inputs],
        "output": [{"name": t.name, "data_type": f"TYPE_{t.datatype}", "dims": t.shape} for t in variant.outputs],
    }


async def _model_ready(box: Box, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    name, version = _model_and_version(parts[:-1])
    application = _resolve(box, principal, name)
    if not box.availability.is_open(application):
        raise ModelUnavailable(name=name)
    _variant(box, application, version)
    return {"name": name, "ready": True}


async def _index(box: Box, principal: Principal, _: list[str], parameters: Mapping[str, Any]) -> Any:
    rows = []
    for application in box.catalogue.visible(principal.tenant):
        if not principal.may_call(application.name):
            continue
        ready = box.availability.is_open(application)
        state, reason = ("READY", "") if ready else ("UNAVAILABLE", "unloaded, or no variant is servable yet")
        versions = sorted(box.catalogue.entry(application.id).servables) if ready else [""]
        rows += [{"name": application.name, "version": v, "state": state, "reason": reason} for v in versions]
    return [row for row in rows if row["state"] == "READY"] if parameters.get("ready") is True else rows


async def _load(box: Box, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    await box.availability.load(_managed(box, principal, parts[2]))
    return {}


async def _unload(box: Box, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    await box.availability.unload(_managed(box, principal, parts[2]))
    return {}


async def _statistics(box: Box, principal: Principal, parts: list[str], _: Mapping[str, Any]) -> Any:
    name, version = _model_and_version(parts[:-1])
    application = _resolve(box, principal, name)
    rows = _statistics_rows(box, application)
    if version is not None:
        _variant(box, application, version)
        rows = [row for row in rows if row["version"] == version]
    return {"model_stats": rows}


async def _all_statistics(box: Box, principal: Principal, _: list[str], __: Mapping[str, Any]) -> Any:
    visible = [a for a in box.catalogue.visible(principal.tenant) if principal.may_call(a.name)]
    return {"model_stats": [row for a in visible for row in _statistics_rows(box, a)]}


def _statistics_rows(box: Box, application: Application) -> list[dict[str, Any]]:
    figures = box.telemetry.of_application(application.id)
    names = set(figures) | (
        set(box.catalogue.entry(application.id).servables) if box.availability.is_open(application) else set()
    )
    to_epoch_ns = int(box.clock.wall_now().timestamp() * NS_PER_S) - box.clock.now_ns()
    return [
        _statistics_row(application.name, name, figures.get(name) or Statistics(), to_epoch_ns)
        for name in sorted(names)
        if name
    ]


def _statistics_row(model: str, version: str, figures: Statistics, to_epoch_ns: int) -> dict[str, Any]:
    done = figures.outcomes.get("done", 0)
    failed = sum(figures.outcomes.values()) - done
    zero = {"count": 0, "ns": 0}
    return {
        "name": model,
        "version": version,
        "last_inference": (figures.last_ns + to_epoch_ns) // NS_PER_MS if figures.last_ns else 0,
        "inference_count": figures.inferences,
        "execution_count": done,
        "inference_stats": {
            "success": _duration(figures.histograms["total"]),
            "fail": {"count": failed, "ns": 0},
            "queue": _duration(figures.histograms["queue"]),
            "compute_input": zero,
            "compute_infer": _duration(figures.histograms["compute"]),
            "compute_output": zero,
            "cache_hit": zero,
            "cache_miss": zero,
        },
        "batch_stats": [],
    }


def _duration(histogram: Histogram) -> dict[str, int]:
    return {"count": histogram.count, "ns": histogram.sum_ns}


# -- pieces ------------------------------------------------------------------------------------------------------------


def _parts(scope: Scope) -> list[str]:
    """ "/v2/models/face/infer" → ["models", "face", "infer"]."""
    path: str = scope["path"]
    return path.rstrip("/").split("/")[2:]


def _authenticate(box: Box, scope: Scope, headers: Mapping[bytes, bytes]) -> Principal:
    client = scope.get("client")
    return box.keyring.authenticate(
        headers.get(b"authorization"), headers.get(b"x-tenant"), client[0] if client else ""
    )


def _resolve(box: Box, principal: Principal, name: str) -> Application:
    """The application a name means to the caller; one the key may not call does not exist for it."""
    if principal.applications and not principal.may_call(name):
        raise UnknownApplication(name=name)
    return box.catalogue.resolve(principal.tenant, name)


def _managed(box: Box, principal: Principal, name: str) -> Application:
    """An application whose residency the caller may command: its own, or any for an admin; devices may not."""
    if principal.role is Role.DEVICE:
        raise Forbidden(action="load or unload models")
    application = _resolve(box, principal, name)
    if application.tenant != principal.tenant and not principal.is_admin:
        raise UnknownApplication(name=name)
    return application


def _variant(box: Box, application: Application, version: str | None) -> Variant:
    entry = box.catalogue.entry(application.id)
    if version is not None:
        return box.catalogue.servable(entry, version).variant
    if not entry.order:
        raise ModelUnavailable(name=application.name)
    return entry.order[0].variant


def _model_and_version(parts: list[str]) -> tuple[str, str | None]:
    """`models/NAME` or `models/NAME/versions/VERSION`."""
    if len(parts) == 2:
        return parts[1], None
    if len(parts) == 4 and parts[2] == "versions":
        return parts[1], parts[3]
    raise UnknownVariant(name="/".join(parts))


def _content_length(headers: Mapping[bytes, bytes]) -> int:
    text = headers.get(b"content-length", b"0")
    return int(text) if text.isdigit() else 0


def _json_length(headers: Mapping[bytes, bytes]) -> int | None:
    text = headers.get(b"inference-header-content-length")
    if text is None:
        return None
    if not text.isdigit():
        raise BadTensor(reason="Inference-Header-Content-Length must be a whole number")
    return int(text)


async def _body(receive: Receive, length: int, limit: int) -> Body:
    """The whole body, refused as soon as it is known to be too large: by its announced `length`, or as it comes.

    A body in one piece is not copied.
    """
    if length > limit:
        raise TooLarge(what="the request body", limit_bytes=limit)
    message = await receive()
    first: Body = message.get("body", b"")
    if not message.get("more_body"):
        return first
    whole = bytearray(first)
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadTensor(reason="the connection closed inside the body")
        whole += message.get("body", b"")
        if len(whole) > limit:
            raise TooLarge(what="the request body", limit_bytes=limit)
    return whole


def _parameters(body: Body) -> Mapping[str, Any]:
    if not body:
        return {}
    try:
        parsed = json.loads(bytes(body))
    except ValueError as error:
        raise BadTensor(reason=f"the JSON of the request cannot be read: {error}") from None
    return parsed if isinstance(parsed, dict) else {}


def _json(value: Any, status: int = 200) -> Answer:
    return status, [_JSON], json.dumps(value, separators=(",", ":")).encode()


def _error(error: BaseException) -> Answer:
    status = 400 if isinstance(error, ModelUnavailable | BadTensor) else status_of(error)
    text = (
        str(error)
        if isinstance(error, ApplianceError)
        else "something went wrong inside the box; its log has the details"
    )
    headers = [_JSON, *((name.lower().encode(), value.encode()) for name, value in headers_of(error).items())]
    return status, headers, json.dumps({"error": text}).encode()
