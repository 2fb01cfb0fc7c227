"""The Open Inference Protocol (KServe v2) as one bare ASGI application: the hot path carries no framework.

The model name is the application, the version is the variant, by number or by name; without a version the box chooses.
Errors have the protocol's own shape, `{"error": "..."}`, with the status of the same error everywhere else, except that
an unavailable model answers 400 as clients expect.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from appliance import __version__
from appliance.api.auth.callers import CONNECTION, caller_of
from appliance.api.auth.keyring import Principal
from appliance.api.box import ServingBox
from appliance.api.http.exchange import EXCHANGE, HttpExchange
from appliance.api.http.limits import JSON_BYTES_MAX, Message, Receive, Scope, Send
from appliance.api.http.packed_body import PackedBody, packing_of
from appliance.api.streams.plain import SESSION
from appliance.api.v2 import classification, models, shared_memory, statistics
from appliance.api.v2.frames import infer_frame
from appliance.api.v2.infer import infer
from appliance.api.v2.messages import (
    Answer,
    content_length,
    error_answer,
    json_answer,
    not_allowed,
    parameters_of,
    whole_body,
)
from appliance.domain.errors import ApplianceError, NotFound, WrongKey
from appliance.runtime.serving.eager import Begun, begin, in_task
from appliance.tasks.large_json import LARGE_BYTES

EXTENSIONS = (
    "binary_tensor_data",
    "model_repository",
    "model_configuration",
    "statistics",
    "sequence",
    "schedule_policy",
    classification.EXTENSION,
)
_Handler = Callable[[ServingBox, Principal, list[str], Mapping[str, Any]], Awaitable[Any]]
_OF_A_MODEL: Mapping[str, _Handler] = {
    "ready": models.ready,
    "stats": statistics.of_model,
    "config": models.config,
}
_READING = ("GET", "HEAD")
_ORDERS: Mapping[str, _Handler] = {"load": models.load, "unload": models.unload}


class V2:
    """Answers everything below `/v2`."""

    def __init__(self, box: Callable[[], ServingBox]) -> None:
        self._find_box = box

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request of ASGI type `http`."""
        exchange: HttpExchange | None = scope.pop(EXCHANGE, None)
        if exchange is None:
            status, headers, body = await self._answer(scope, dict(scope["headers"]), receive)
        else:
            begun, exchange.begun = exchange.begun, None
            status, headers, body = await (begun or self._answer(scope, exchange.headers, exchange.receive))
            if scope["method"] == "POST" and exchange.answer(status, headers, body):
                return
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def begin(self, scope: Scope) -> Callable[[], None] | None:
        """Begin with a request outside any task, or go on with it when its body has come; what is returned writes its
        answer.

        None: it has to wait for something, and goes on when it is called with its scope in a task; where its exchange
        `is_gathering`, only for its body.
        """
        exchange: HttpExchange = scope[EXCHANGE]
        if not exchange.can_answer:
            return None
        begun, exchange.begun = exchange.begun, None
        answer = begin(self._answer(scope, exchange.headers, exchange.receive)) if begun is None else begun.go_on()
        if isinstance(answer, Begun):
            exchange.begun = answer
            return None
        del scope[EXCHANGE]
        return exchange.end(*answer)

    async def _answer(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive) -> Answer:
        """The answer to a request, whatever happens, with its length."""
        try:
            answer = await self._made(scope, headers, receive)
        except Exception as error:
            if not isinstance(error, ApplianceError):
                self._find_box().logger.exception("request failed", path=scope["path"])
            answer = error_answer(error)
        answer[1].append((b"content-length", b"%d" % len(answer[2])))
        return answer

    async def _made(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive) -> Answer:
        parts = _parts(scope)
        method: str = "GET" if scope["method"] == "HEAD" else scope["method"]
        box = self._find_box()
        if not parts or parts[0] == "health":
            return self._health(box, parts) if method == "GET" else not_allowed(_READING)
        principal = caller_of(box.keyring, scope, headers)
        if parts[0] == "models" and parts[-1] == "infer" and method == "POST":
            exchange: HttpExchange | None = scope.get(EXCHANGE)
            packing = packing_of(headers)
            small = None
            if packing is not None:
                await in_task()
                receive = PackedBody(receive, packing).receive
            elif exchange is not None:
                small = exchange.small_body(min(LARGE_BYTES, box.body_bytes_max))
            receive = _while_known(box, principal, receive)
            connection = scope.get(CONNECTION)
            source = 0 if connection is None else id(connection)
            asked = infer if SESSION not in headers else infer_frame
            return await asked(box, principal, parts, headers, receive, small, source)
        await in_task()
        if allowed := _other_methods(parts, method):
            return not_allowed(allowed)
        found = _route(parts, method)
        if found is None:
            raise NotFound(name=scope["path"])
        if found is shared_memory.register:
            found = partial(found, connection=scope.get(CONNECTION))
        receive = _while_known(box, principal, receive)
        parameters = await _parameters(box, principal, headers, receive) if method == "POST" else {}
        return json_answer(await found(box, principal, parts, parameters))

    def _health(self, box: ServingBox, parts: list[str]) -> Answer:
        """Open to everyone: probes have no key."""
        if not parts:
            extensions = EXTENSIONS if box.regions is None else (*EXTENSIONS, shared_memory.EXTENSION)
            return json_answer({"name": "edge-appliance", "version": __version__, "extensions": extensions})
        if parts == ["health", "live"]:
            return json_answer({"live": True})
        if parts == ["health", "ready"]:
            return json_answer({"ready": box.is_ready()}, 200 if box.is_ready() else 503)
        raise NotFound(name="/".join(parts))


def _while_known(box: ServingBox, principal: Principal, receive: Receive) -> Receive:
    """`receive`, which ends when the key of the caller is revoked meanwhile. Raises then: WrongKey."""

    async def received() -> Message:
        message = await receive()
        if box.keyring.known(principal.key_id) is None:
            raise WrongKey
        return message

    return received


async def _parameters(
    box: ServingBox, principal: Principal, headers: Mapping[bytes, bytes], receive: Receive
) -> Mapping[str, Any]:
    """The JSON that an order carries. Raises: BadTensor, TooLarge, Busy."""
    packing = packing_of(headers)
    if packing is not None:
        receive = PackedBody(receive, packing).receive
    with box.in_flight.body(principal.tenant) as held:
        return parameters_of(await whole_body(receive, content_length(headers), JSON_BYTES_MAX, held))


def _route(parts: list[str], method: str) -> _Handler | None:
    """The calls about models and shared memory; infer and health are handled before."""
    if method == "GET" and parts[0] == "models":
        if parts == ["models", "stats"]:
            return statistics.of_all
        is_whole_name = len(parts) in (2, 4)  # MODEL, or MODEL/versions/VERSION, whatever they are called
        return models.metadata if is_whole_name else _OF_A_MODEL.get(parts[-1])
    if method == "POST" and parts == ["repository", "index"]:
        return models.index
    if method == "POST" and parts[:2] == ["repository", "models"] and len(parts) == 4:
        return _ORDERS.get(parts[3])
    return shared_memory.route(parts, method) if parts[0] == shared_memory.PATH else None


def _other_methods(parts: list[str], method: str) -> tuple[str, ...]:
    """What a path can be asked with that cannot be asked with this method."""
    if _route(parts, method) is not None:
        return ()
    if parts[0] == "models" and parts[-1] == "infer" and len(parts) > 2:
        return ("POST",)
    reading = _READING if _route(parts, "GET") is not None else ()
    return (*reading, "POST") if _route(parts, "POST") is not None else reading


def _parts(scope: Scope) -> list[str]:
    """ "/v2/models/face/infer" → ["models", "face", "infer"]."""
    path: str = scope["path"]
    return path.rstrip("/").split("/")[2:]
