"""The outermost layer of the service: a name for each request, headers that every answer carries, and bounds on what
bodies may take.

Plain ASGI, so that it costs microseconds and sees the body before anybody has read it. A body needs a good key before
any of it is kept. One that announces too much is refused where its first piece is asked for: unread, but after what the
route has to say to the path and the key. One that does not announce its size is counted as it comes. Bodies that end up
in memory also share one budget (`InFlight`), which the `/v2` handler uses as well. An exception that nobody expected
ends here: logged with the request's name, answered without internals.
"""

import itertools
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import structlog

from appliance.api.http.packed_body import HEADER as PACKING
from appliance.api.http.packed_body import PackedBody, packing_of
from appliance.api.http.problems import problem_response
from appliance.api.http.proxies import PREFIX
from appliance.domain.errors import ApplianceError, BadInput, Busy, TooLarge, WrongKey
from appliance.runtime.engine.portions import Portions

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

JSON_BYTES_MAX = 2**20
"""Largest body of a management request."""
SIGN_IN_BYTES_MAX = 1024
"""Largest body that anybody may send."""
RESERVED_BYTES = 640 * 1024
"""Of an announced body: what the server gathers before anybody asks for it."""
PRINCIPAL = "appliance.principal"
"""Place in a scope of the caller, where the key was checked already."""
HELD_BODY = "appliance.held_body"
"""Place in a scope of the `HeldBody`, where there is a body."""
REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)
STRICT_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
NO_STORE = (b"cache-control", b"no-store")


class Member(Protocol):
    """Whoever sent a good key."""

    @property
    def tenant(self) -> str: ...


M = TypeVar("M", bound=Member)


class InFlight:
    """Bytes of request bodies in memory, and of what was made of them, of all requests together; no tenant can take
    all. Event-loop thread only.
    """

    def __init__(self, bytes_max: int) -> None:
        self.portions = Portions(bytes_max)

    @property
    def bytes(self) -> int:
        """Counted now."""
        return self.portions.taken

    def body(self, tenant: str) -> "HeldBody":
        """A body of a tenant's request, to be counted while it is in memory."""
        return HeldBody(self.portions, tenant)


class HeldBody:
    """One body's bytes, and those of what was made of it: counted as they come, given back at the end of the `with`.

    What is announced is reserved only up to `RESERVED_BYTES`, so that who announces much and sends nothing keeps nobody
    out.
    """

    __slots__ = ("_bytes", "_portions", "_tenant")

    def __init__(self, portions: Portions, tenant: str) -> None:
        self._portions = portions
        self._tenant = tenant
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """Counted now."""
        return self._bytes

    def announce(self, length: int) -> None:
        """Raises: Busy when a body of this length would not fit now."""
        if length > RESERVED_BYTES and not self._portions.has_room(self._tenant, length):
            raise Busy()
        self.grow(min(length, RESERVED_BYTES))

    def grow(self, count: int) -> None:
        """So many bytes have come in all. Raises: Busy when they do not fit."""
        more = count - self._bytes
        if more > 0:
            if not self._portions.take(self._tenant, more):
                raise Busy()
            self._bytes = count

    def add(self, count: int) -> None:
        """So many bytes more are made of the body: arrays, texts, a tree of JSON.

        Raises: TooLarge when they never fit; Busy when they do not fit beside what others hold.
        """
        if self._bytes + count > self._portions.of_one_max:
            raise TooLarge(what="the body with what the box makes of it", limit_bytes=self._portions.of_one_max)
        self.grow(self._bytes + count)

    def take_outputs(self, count: int) -> None:
        """So many bytes of outputs wait to be written; only what exceeds the bytes counted so far is added.

        Outputs that never fit count as all that one tenant may hold. Raises: Busy when they do not fit beside what
        others hold.
        """
        self.grow(min(count, self._portions.of_one_max))

    def shrink(self, count: int) -> None:
        """No more than so many bytes are kept now."""
        less = self._bytes - count
        if less > 0:
            self._portions.give(self._tenant, less)
            self._bytes = count

    def has_room(self, count: int) -> bool:
        """Whether so many bytes in all would fit now."""
        return count <= self._bytes or self._portions.has_room(self._tenant, count - self._bytes)

    def hand_over(self) -> "HeldBody":
        """The same bytes, from now on counted until this one is released: for who keeps them beyond the answer."""
        taken = HeldBody(self._portions, self._tenant)
        taken._bytes, self._bytes = self._bytes, 0
        return taken

    def release(self) -> None:
        """Give all back."""
        if self._bytes:
            self._portions.give(self._tenant, self._bytes)
            self._bytes = 0

    def __enter__(self) -> "HeldBody":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@dataclass(frozen=True, slots=True)
class BodyRule:
    """How much a body may hold, and whether it stays in memory (else it is spooled to disk as it comes)."""

    what: str
    limit_bytes: int
    in_memory: bool
    needs_key: bool = True
    """Whether a good key comes before it; else it is tiny, and holds a key itself."""


@dataclass(frozen=True, slots=True)
class BodyRules:
    """Which rule holds for a request."""

    management: BodyRule
    media: BodyRule
    frame: BodyRule
    form: BodyRule
    upload: BodyRule
    sign_in: BodyRule

    @classmethod
    def of(
        cls, *, body_bytes_max: int, frame_bytes_max: int, form_bytes_max: int, upload_bytes_max: int
    ) -> "BodyRules":
        """From the settings; a form may be larger than its file by what surrounds it."""
        return cls(
            BodyRule("the body", JSON_BYTES_MAX, True),
            BodyRule("the body", body_bytes_max, True),
            BodyRule("the frame", frame_bytes_max, True),
            BodyRule("the form (large models go by /v1/uploads)", form_bytes_max + JSON_BYTES_MAX, False),
            BodyRule("the piece", upload_bytes_max, False),
            BodyRule("the key", SIGN_IN_BYTES_MAX, False, needs_key=False),
        )

    def rule(self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> BodyRule:
        """The rule of a request, by its method and path, and of `predict` by whether it is a frame of a session."""
        if method == "PATCH" and path.startswith("/v1/uploads/"):
            return self.upload
        if method == "POST" and (path == "/v1/models" or path.startswith("/v1/models/")):
            return self.form
        if path.startswith("/v1/sessions/") and path.endswith("/frames"):
            return self.frame
        if path == "/v1/sign-in":
            return self.sign_in
        if path.endswith("/predict"):
            return self.frame if any(name == b"x-session" for name, _ in headers) else self.media
        if path.startswith("/v2/"):
            return self.media
        return self.management


class Bounds(Generic[M]):
    """Wraps the service. `scope["request_id"]` is the request's name for everybody inside."""

    def __init__(
        self,
        app: ASGIApp,
        rules: BodyRules,
        in_flight: InFlight,
        logger: Any,
        caller: Callable[[Scope], M],
        welcome: Callable[[Scope, M], Callable[[], bool]],
    ) -> None:
        """`caller` raises where no good key was sent; `welcome` returns what says later whether it still is good."""
        self._app = app
        self._welcome = welcome
        self._caller = caller
        self._rules = rules
        self._in_flight = in_flight
        self._logger = logger
        self._prefix = secrets.token_hex(4)
        self._counter = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = self.request_id(scope)
        scope["request_id"] = request_id.decode()
        rule = self._rules.rule(scope["method"], scope["path"], scope["headers"])
        exchange = _BoundedCall(rule, receive, send, request_id, scope.get(PREFIX, ""))
        with structlog.contextvars.bound_contextvars(request_id=scope["request_id"]):
            await self._run(scope, exchange, needs_key=rule.needs_key)

    async def _run(self, scope: Scope, exchange: "_BoundedCall", *, needs_key: bool) -> None:
        try:
            length = content_length(scope)
            if length != 0 and (packing := packing_of(dict(scope["headers"]))) is not None:
                exchange.unpack(packing)
            if length != 0 and not needs_key:
                exchange.expect(None, length)
            elif length != 0:
                principal = scope[PRINCIPAL] = self._caller(scope)
                held = scope[HELD_BODY] = self._in_flight.body(principal.tenant)
                exchange.expect(held, length, self._welcome(scope, principal))
            await self._app(scope, exchange.receive, exchange.send)
        except Exception as error:
            if not isinstance(error, ApplianceError):
                self._logger.exception("request failed", method=scope["method"], path=scope["path"])
            if not exchange.started:
                await exchange.refuse(error, scope["path"])
            elif not exchange.finished:
                raise  # half an answer is out: only breaking the line can tell the caller
        finally:
            exchange.close()

    def request_id(self, scope: Scope) -> bytes:
        """The caller's `X-Request-Id` where it is a sane word, else a fresh one."""
        for name, value in scope["headers"]:
            if name == b"x-request-id" and REQUEST_ID.fullmatch(value):
                return bytes(value)
        return f"{self._prefix}-{next(self._counter)}".encode()


class _BoundedCall:
    """One request's bytes: counted on their way in, decorated on their way out."""

    def __init__(self, rule: BodyRule, receive: Receive, send: Send, request_id: bytes, prefix: str) -> None:
        self._rule = rule
        self._prefix = prefix.encode()
        self._held: HeldBody | None = None
        self._is_welcome: Callable[[], bool] = lambda: True
        self._receive = receive
        self._send = send
        self._request_id = request_id
        self._refusal: ApplianceError | None = None
        """Why nothing of the body is given to who asks for it."""
        self._seen = 0
        self._ended = False
        self.started = False
        self.finished = False

    def expect(self, held: HeldBody | None, length: int | None, is_welcome: Callable[[], bool] = lambda: True) -> None:
        """A body of this length, None = unknown; `receive` refuses it before its first byte when it will not fit, and
        as soon as its sender is not welcome any more.
        """
        self._is_welcome = is_welcome
        try:
            self._check(length or 0)
            self._held = held
            if held is not None and self._rule.in_memory:
                held.announce(length or 0)
        except (TooLarge, Busy) as error:
            self._refusal = error

    def unpack(self, packing: str) -> None:
        """The body comes packed, and is counted unpacked."""
        self._receive = PackedBody(self._receive, packing).receive

    async def receive(self) -> Message:
        """The next piece, counted.

        Raises: TooLarge, Busy; BadInput where it cannot be unpacked; WrongKey where the key was revoked meanwhile.
        """
        if self._refusal is not None:
            raise self._refusal
        message = await self._receive()
        if not self._is_welcome():
            raise WrongKey
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            self._ended = not message.get("more_body", False)
            self._check(self._seen)
            if self._held is not None and self._rule.in_memory:
                self._held.grow(self._seen)
        return message

    async def send(self, message: Message) -> None:
        """Pass an answer on with the headers that all carry; those that a route set itself stay."""
        if message["type"] == "http.response.start":
            self.started = True
            headers = [(k, self._prefix + v if k == b"location" else v) for k, v in message.get("headers", ())]
            names = {name.lower() for name, _ in headers}
            headers += [h for h in (*SAFE_HEADERS, STRICT_POLICY, NO_STORE) if h[0] not in names]
            headers.append((b"x-request-id", self._request_id))
            message = {**message, "headers": headers}
        elif message["type"] == "http.response.body":
            self.finished = not message.get("more_body", False)
        await self._send(message)

    async def refuse(self, error: Exception, path: str) -> None:
        """Answer with a problem. What comes of an unread body is the server's to drop."""
        status, headers, body = problem_response(error, path)
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        raw.append((b"content-length", str(len(body)).encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": raw})
        await self._send({"type": "http.response.body", "body": body})

    def close(self) -> None:
        """Give the counted bytes back."""
        if self._held is not None:
            self._held.release()

    def _check(self, count: int) -> None:
        if count > self._rule.limit_bytes:
            raise TooLarge(what=self._rule.what, limit_bytes=self._rule.limit_bytes)


def content_length(scope: Scope) -> int | None:
    """The announced size of the body, 0 where there is none; None where it comes in chunks, or packed.

    Raises: BadInput when it is no number.
    """
    headers: dict[bytes, bytes] = dict(scope["headers"])
    length = headers.get(b"content-length")
    if length is not None and not (length.isdigit() and len(length) <= 18):
        raise BadInput(reason="Content-Length is no sane number")
    if length == b"0" or (length is None and b"transfer-encoding" not in headers):
        return 0
    return None if length is None or PACKING in headers else int(length)
