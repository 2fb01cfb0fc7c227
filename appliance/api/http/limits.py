"""The outermost layer of the service: a name for each request, headers that every answer carries, and bounds on what
bodies may take.

Plain ASGI, so that it costs microseconds and sees the body before anybody has read it. A body that announces too much
is refused unread; one that does not announce its size is counted as it comes. Bodies that end up in memory also share
one budget (`InFlight`), which the `/v2` handler uses as well. An exception that nobody expected ends here: logged with
the request's name, answered without internals.
"""

import asyncio
import itertools
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import structlog

from appliance.api.http.problems import problem_response
from appliance.domain.errors import BadInput, Busy, TooLarge

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

JSON_BYTES_MAX = 2**20
"""Largest body of a management request."""
BODY_IDLE_S = 30.0
"""A body of which nothing comes for so long is given up, and its memory with it."""
LINGER_BYTES = 64 * 2**20
LINGER_S = 2.0
REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)
STRICT_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
NO_STORE = (b"cache-control", b"no-store")


class InFlight:
    """Bytes of request bodies in memory, of all requests together. Event-loop thread only."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0

    def take(self, count: int) -> None:
        """Count bytes in. One body alone may always pass: its own limit bounds it.

        Raises: Busy when they do not fit.
        """
        self.check(count)
        self.bytes += count

    def check(self, count: int) -> None:
        """Raises: Busy when so many bytes would not fit now."""
        if self.bytes and self.bytes + count > self.bytes_max:
            raise Busy()

    def give(self, count: int) -> None:
        """Count bytes out."""
        self.bytes -= count


@dataclass(frozen=True, slots=True)
class BodyRule:
    """How much a body may hold, and whether it stays in memory (else it is spooled to disk as it comes)."""

    what: str
    limit_bytes: int
    in_memory: bool


@dataclass(frozen=True, slots=True)
class BodyRules:
    """Which rule holds for a request."""

    management: BodyRule
    media: BodyRule
    form: BodyRule
    upload: BodyRule

    @classmethod
    def of(cls, *, body_bytes_max: int, form_bytes_max: int, upload_bytes_max: int) -> "BodyRules":
        """From the three settings; a form may be larger than its file by what surrounds it."""
        return cls(
            BodyRule("the body", JSON_BYTES_MAX, True),
            BodyRule("the body", body_bytes_max, True),
            BodyRule("the form (large models go by /v1/uploads)", form_bytes_max + JSON_BYTES_MAX, False),
            BodyRule("the piece", upload_bytes_max, False),
        )

    def rule(self, method: str, path: str) -> BodyRule:
        """The rule of a request, by its method and path alone."""
        if method == "PATCH" and path.startswith("/v1/uploads/"):
            return self.upload
        if method == "POST" and (path == "/v1/models" or path.startswith("/v1/models/")):
            return self.form
        if path.startswith("/v2/") or path.endswith("/predict"):
            return self.media
        return self.management


class Bounds:
    """Wraps the service. `scope["request_id"]` is the request's name for everybody inside."""

    def __init__(self, app: ASGIApp, rules: BodyRules, in_flight: InFlight, logger: Any) -> None:
        self._app = app
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
        exchange = _BoundedCall(
            self._rules.rule(scope["method"], scope["path"]), self._in_flight, receive, send, request_id
        )
        with structlog.contextvars.bound_contextvars(request_id=scope["request_id"]):
            await self._run(scope, exchange)

    async def _run(self, scope: Scope, exchange: "_BoundedCall") -> None:
        try:
            exchange.announce(content_length(scope))
            await self._app(scope, exchange.receive, exchange.send)
        except Exception as error:
            if not isinstance(error, TooLarge | Busy | BadInput):
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

    def __init__(self, rule: BodyRule, in_flight: InFlight, receive: Receive, send: Send, request_id: bytes) -> None:
        self._rule = rule
        self._in_flight = in_flight
        self._receive = receive
        self._send = send
        self._request_id = request_id
        self._counted = 0
        self._seen = 0
        self._ended = False
        self.started = False
        self.finished = False

    def announce(self, length: int | None) -> None:
        """Refuse what will not fit before the first byte. Raises: TooLarge, Busy.

        Nothing is reserved: room that is only announced could be taken by callers without a key.
        """
        if length is None:
            return
        self._check(length)
        if self._rule.in_memory:
            self._in_flight.check(length)

    async def receive(self) -> Message:
        """The next piece, counted. Raises: TooLarge, Busy; BadInput when the body stops coming."""
        message = await (self._receive() if self._ended else self._next_piece())
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            self._ended = not message.get("more_body", False)
            self._check(self._seen)
            self._count(self._seen)
        return message

    async def _next_piece(self) -> Message:
        try:
            async with asyncio.timeout(BODY_IDLE_S):
                return await self._receive()
        except TimeoutError:
            raise BadInput(reason=f"nothing of the body came for {BODY_IDLE_S:.0f} s") from None

    async def send(self, message: Message) -> None:
        """Pass an answer on with the headers that all carry; those that a route set itself stay."""
        if message["type"] == "http.response.start":
            self.started = True
            headers = list(message.get("headers", ()))
            names = {name.lower() for name, _ in headers}
            headers += [h for h in (*SAFE_HEADERS, STRICT_POLICY, NO_STORE) if h[0] not in names]
            headers.append((b"x-request-id", self._request_id))
            message = {**message, "headers": headers}
        elif message["type"] == "http.response.body":
            self.finished = not message.get("more_body", False)
        await self._send(message)

    async def refuse(self, error: Exception, path: str) -> None:
        """Answer with a problem.

        An unread body is read and dropped for a moment, else the caller may lose the answer to a reset.
        """
        status, headers, body = problem_response(error, path)
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        raw.append((b"content-length", str(len(body)).encode()))
        if not self._ended:
            raw.append((b"connection", b"close"))
        await self.send({"type": "http.response.start", "status": status, "headers": raw})
        await self._send({"type": "http.response.body", "body": body, "more_body": not self._ended})
        if not self._ended:
            await self._linger()
            await self._send({"type": "http.response.body", "body": b""})

    def close(self) -> None:
        """Give the counted bytes back."""
        self._in_flight.give(self._counted)
        self._counted = 0

    async def _linger(self) -> None:
        dropped = 0
        try:
            async with asyncio.timeout(LINGER_S):
                while dropped < LINGER_BYTES:
                    message = await self._receive()
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        return
                    dropped += len(message.get("body", b""))
        except TimeoutError:
            return

    def _check(self, count: int) -> None:
        if count > self._rule.limit_bytes:
            raise TooLarge(what=self._rule.what, limit_bytes=self._rule.limit_bytes)

    def _count(self, count: int) -> None:
        if self._rule.in_memory and count > self._counted:
            self._in_flight.take(count - self._counted)
            self._counted = count


def content_length(scope: Scope) -> int | None:
    """The announced size of the body; None where it is not announced.

    Raises: BadInput when it is no number.
    """
    for name, value in scope["headers"]:
        if name == b"content-length":
            if not value.isdigit() or len(value) > 18:
                raise BadInput(reason="Content-Length is no sane number")
            return int(value)
    return None
