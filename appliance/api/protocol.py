"""The box's HTTP protocol: a shorter way for `/v2`. Small requests begin when their body is there, and are answered
together; large ones begin with their head, and may be refused by it; a head that comes again needs no parser.

Uvicorn begins a task with the headers, wakes it for the body, and writes an answer in two system calls in the midst of
the computing.
"""

import asyncio
import os
import socket
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from appliance.api.auth.callers import CONNECTION, Shown
from appliance.api.gateway import Gateway
from appliance.api.http.bounded_protocol import BODY_WATER_BYTES, Refused
from appliance.api.http.direct_body import DirectBodyProtocol, Receiver
from appliance.api.http.exchange import EXCHANGE, SIZE, AlignedBody, HttpExchange, number
from appliance.api.http.known_head import KnownHead, head_of
from appliance.api.http.origins import Headers, Origins
from appliance.api.http.upgrades import FRAMING
from appliance.api.streams.plain import SESSION
from appliance.api.streams.target import is_stream
from appliance.clock import NS_PER_MS

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

    from appliance.api.http.websocket import WebSocket

BODY_SMALL_BYTES = 16 * 1024
"""A body below this is kept before anybody looks at the request, and a copy of it costs less than preparing to do
without.
"""

GOING_AWAY = 1001
"""The code that streams are closed with when the box stops."""
CLOSING_S = 2.0
"""How long a stream may take to see that."""
HANDSHAKE = frozenset({b"host", b"connection", b"upgrade", b"origin"})
"""Headers that a handshake needs, beside its own (`sec-…`)."""

COMPUTING = ("/infer", "/predict")
"""Ends of paths of requests that change nothing in the box."""
FRAMEWORK_NS = NS_PER_MS
"""What a request through the framework takes of the event loop, about."""
PIPELINE_MAX = 256
"""Requests of one connection that wait for the answer to the one before."""


class BoxProtocol(DirectBodyProtocol):
    """For `uvicorn.Config(http=partial(BoxProtocol, ...))`."""

    def __init__(self, *args: Any, origins: Origins, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._origins = origins
        self.shown: Shown | None = None
        self._gathering: ASGI3Application | None = None
        """Who is to answer, or goes on with, the request whose body is being gathered."""
        self._answered: RequestResponseCycle | None = None
        """The request that is being answered; others may have come behind it."""
        self._work: asyncio.Task[None] | None = None
        """The task that computes the answer to that request; None: no task does."""
        self._head: bytes | KnownHead = b""
        """Of the last request of a known caller."""
        self._socket: WebSocket | None = None
        """What speaks on the connection instead, after an upgrade."""
        self._is_handed_over = False

    # -- the connection ------------------------------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.cycle is not None:
            self.cycle.scope.pop(CONNECTION, None)  # type: ignore[misc]  # a circle else
        self._take_back()

    def _abandon(self) -> None:
        super()._abandon()
        self._take_back()

    def _take_back(self) -> None:
        """Cancel the request that is being answered, for its caller has left. A run that has begun ends."""
        cycle, self._answered = self._answered, None
        if cycle is None or cycle.response_complete:
            return
        cycle.disconnected = True
        cycle.message_event.set()
        if not _only_computes(cycle.scope):
            return
        if self._work is not None:
            self._work.cancel()
        exchange: HttpExchange | None = cycle.scope.pop(EXCHANGE, None)  # type: ignore[misc]
        if exchange is not None:
            exchange.close()

    def duplicate(self) -> socket.socket | None:
        """Return a socket of the caller's own at the same connection; None: it is closed already, or is a proxy's."""
        if self.transport.is_closing() or self._proxies.have(self.client):
            return None
        return socket.socket(fileno=os.dup(self.transport.get_extra_info("socket").fileno()))

    # -- what comes ----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes | memoryview) -> None:
        """Whatever comes, in order; `data` is used now and not kept."""
        count = len(data)
        self.received_bytes += count
        if self._ended:
            self._drop(count)
            if not self.is_over:  # what is not read yet waits, and so does its sender
                self._drop_unread()
            return
        if self._surplus_bytes:
            data = self._without_surplus(data)
        elif self._large is not None:
            data = self._into_place(data)
        is_head = self.tenant is not None and self._is_between()
        if is_head and data and isinstance(self._head, KnownHead):
            data = self._begin_known(self._head, data)
        if not data:
            self._drop_unread()
            return
        self._bare_bytes += len(data)
        try:
            if self._expects_head() and len(data) > BODY_SMALL_BYTES:
                self._feed_large(memoryview(data))
            else:
                self._feed(memoryview(data))
            if is_head:
                self._know_head(data)
        except (httptools.HttpParserError, Refused) as error:
            refused = error if isinstance(error, Refused) else self._refused
            if refused is None:
                refused = Refused("bad-request", "what came is no request of HTTP")
            self._refuse(refused.slug, refused.detail)

    # -- the same head again -------------------------------------------------------------------------------------------

    def _is_between(self) -> bool:
        """Whether all that was asked is answered, and nothing of another request has come."""
        cycle = self.cycle
        return cycle is not None and cycle.response_complete and not cycle.more_body and self.scope is cycle.scope

    def _know_head(self, data: bytes | memoryview) -> None:
        """Keep the head that `data` began with, where it is one of `/v2`; one that came twice needs no parser then."""
        raw = head_of(data)
        if not raw or raw != self._head:
            self._head = raw
            return
        cycle = self.cycle
        known = KnownHead(raw, cycle.scope)  # or that of a request behind it, which is found out
        if cycle.keep_alive and known.is_repeatable(BODY_WATER_BYTES):
            self._head = known

    def expected_bytes(self) -> int | None:
        """A known head before a large body is read by itself, and the body straight to its place."""
        known = self._head
        if isinstance(known, KnownHead) and known.size is not None and known.size >= BODY_SMALL_BYTES:
            return known.length if self._is_between() else None
        return None

    def _begin_known(self, known: KnownHead, data: bytes | memoryview) -> bytes | memoryview:
        """Begin with a request whose head is known; returns what is left of `data`: all, where it is another one."""
        assert known.size is not None
        end = known.length + known.size
        is_small = known.size < BODY_SMALL_BYTES
        if not known.begins(data) or (is_small and len(data) < end):
            return data
        self.scope = {**known.scope}  # type: ignore[typeddict-item]
        cycle = self.cycle = RequestResponseCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=True,
            on_response=self.on_response_complete,
        )
        self._answer_next(cycle)
        exchange = self._offer_exchange(cycle, known.headers)
        if is_small:
            cycle.body += data[known.length : end]
            self._gathering = self.app
            self.on_message_complete()
            return data[end:]
        self._begin_large(cycle, self.app, exchange)
        self._go_past_parser()
        data = data[known.length :]
        return self._without_surplus(data) if self._surplus_bytes else self._into_place(data)

    # -- another protocol ----------------------------------------------------------------------------------------------

    def _should_upgrade(self) -> bool:
        """Whether the head asks for a stream, in a way in which there is one, and nothing else is to be answered."""
        if self._get_upgrade() != b"websocket" or self.scope["method"] != "GET" or not is_stream(self.url):
            return False
        is_plain = self.scope["http_version"] == "1.1" and not any(name in FRAMING for name, _ in self.headers)
        is_between = self.cycle is None or (self.cycle.response_complete and not self.cycle.more_body)
        return is_plain and is_between and isinstance(self.app, Gateway)

    def _upgrade(self, data: memoryview) -> None:
        """Leave the connection to a WebSocket."""
        if self._is_handed_over:  # a piece behind the head
            self.transport.abort()
            return
        if data:
            raise Refused("bad-request", "nothing may come before the handshake is answered")
        self._is_handed_over = True
        self._bare_bytes, self._head = 0, b""
        lines = [b"%b: %b\r\n" % one for one in self.headers if one[0] in HANDSHAKE or one[0].startswith(b"sec-")]
        head = b"GET %b HTTP/1.1\r\n%b\r\n" % (self.url, b"".join(lines))
        url = httptools.parse_url(self.url)
        scope = {**self.scope, "type": "websocket", "path": url.path.decode("ascii"), CONNECTION: self}
        scope["query_string"] = url.query or b""
        self.transport.pause_reading()
        task = self.loop.create_task(self._stream(scope, head), name="stream")
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    async def _stream(self, scope: dict[str, Any], head: bytes) -> None:
        assert isinstance(self.app, Gateway)
        try:
            streams = await self.app.streams()
            if not self._ended and not self.transport.is_closing():
                self._socket = streams.socket(self.transport, head, self)
                await streams.serve(scope, self._socket)
        except Exception:
            self.logger.exception("stream failed")
            self.transport.abort()

    @property
    def _is_at_first_request(self) -> bool:
        return super()._is_at_first_request and not self._is_handed_over

    def refuse_upgrade(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Answer the handshake as a request that is the last one."""
        self._socket = None
        self.transport.set_protocol(Receiver(self))
        self.transport.resume_reading()
        self._end(status, headers, body)

    def look(self, now_s: float) -> None:
        """As without a WebSocket, which looks itself."""
        if self._socket is not None:
            self._socket.look(now_s)
        else:
            super().look(now_s)

    def shutdown(self) -> None:
        """The server stops: the device may come back when it is there again."""
        if self._socket is not None:
            self._socket.close(GOING_AWAY)
            self.loop.call_later(CLOSING_S, self._socket.abort)
        else:
            super().shutdown()

    # -- requests ------------------------------------------------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: "ASGI3Application") -> None:
        """Offer the handler of `/v2` the exchange.

        It begins when a small body is there; before a large one, so that a stranger's is refused unread.
        """
        if self.is_ending:
            return
        self._answer_next(cycle)
        preflight = self._origins.preflight(cycle.scope)
        if preflight is not None:
            self._start_task(cycle, partial(_answer_empty, preflight))
            return
        if cycle.scope["path"].startswith("/v2/"):
            exchange = self._offer_exchange(cycle, dict(cycle.scope["headers"]))
            if exchange.awaits_little(BODY_SMALL_BYTES):
                self._gathering = app
                return
            self._begin_large(cycle, app, exchange)
            return
        cycle.scope[CONNECTION] = self  # type: ignore[literal-required]
        self._start_task(cycle, app)

    def _answer_next(self, cycle: RequestResponseCycle) -> None:
        self._requests += 1
        self._dropped_bytes = 0
        self._answered, self._work = cycle, None
        cycle.transport = self._line  # type: ignore[assignment]
        if for_page := self._origins.headers(cycle.scope):
            cycle.default_headers = [*cycle.default_headers, *for_page]

    def _start_task(self, cycle: RequestResponseCycle, app: "ASGI3Application") -> None:
        """Answer in a task, as uvicorn does; one that only computes ends with its connection."""
        if self.is_over:
            self._turns.next(self.owner, partial(self._run_task, cycle, app))
        else:
            self._turns.took(self.owner, FRAMEWORK_NS)
            self._run_task(cycle, app)

    def _run_task(self, cycle: RequestResponseCycle, app: "ASGI3Application") -> None:
        answering = _Answering(app, cycle, self)
        if not _only_computes(cycle.scope):
            super()._start_asgi_task(cycle, answering)
            return
        task = self._work = self.loop.create_task(cycle.run_asgi(answering))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _offer_exchange(self, cycle: RequestResponseCycle, headers: Mapping[bytes, bytes]) -> HttpExchange:
        exchange = HttpExchange(cycle, headers, self.ends_with)
        cycle.scope[CONNECTION] = self  # type: ignore[literal-required]
        cycle.scope[EXCHANGE] = exchange  # type: ignore[literal-required]
        return exchange

    def _begin_large(self, cycle: RequestResponseCycle, app: "ASGI3Application", exchange: HttpExchange) -> None:
        """Begin before the body: without a task, so that a refusal costs little, and waiting for the body, too."""
        body = exchange.align_body(BODY_WATER_BYTES)
        write = app.begin(cycle.scope) if isinstance(app, Gateway) else None  # type: ignore[arg-type]
        if write is not None:
            write()
        elif exchange.is_gathering:
            self._gathering = app
        else:
            self._start_task(cycle, app)
        if body is not None and cycle is self.cycle and not cycle.waiting_for_100_continue:
            self._left_bytes = body.size - len(body)

    def _gather_no_more(self) -> None:
        """The body that is being gathered will not be whole."""
        if self._gathering is not None:
            self._gathering = None
            exchange: HttpExchange = self.cycle.scope.pop(EXCHANGE)  # type: ignore[misc]
            exchange.close()

    def on_message_complete(self) -> None:
        """Go on with a request that waited for its body, perhaps without a task: at the end of the turn where that is
        small, now where it is large, for then hardly another has come.
        """
        if self.parser.should_upgrade():
            return  # only its head: as the parser sees it the rest is not HTTP
        self._bare_bytes = self._left_bytes = 0
        super().on_message_complete()
        self.cycle.more_body = False  # also of one that was answered before
        if len(self.pipeline) > PIPELINE_MAX:
            self._stop("bad-request", "too many requests in line on one connection")
        app, self._gathering = self._gathering, None
        if app is None:
            return
        cycle = self.cycle
        begin = partial(self._start_task, cycle, app)
        if isinstance(app, Gateway):
            answer = app.answer if isinstance(cycle.body, AlignedBody) else app.answer_soon
            answer(cycle.scope, begin)  # type: ignore[arg-type]
        else:
            begin()

    def on_response_complete(self) -> None:
        """As uvicorn's, without a timer for each request: `look` closes what is idle."""
        self.server_state.total_requests += 1
        if self.is_ending:
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._turns.next(self.owner, partial(self._begin_next, *self.pipeline.pop()))
        elif self.cycle.body:  # of a request that was refused unread: not to be kept until the next one
            self.cycle.body = bytearray()

    def _begin_next(self, cycle: RequestResponseCycle, app: "ASGI3Application") -> None:
        """Begin with a request that waited for the answer to the one before."""
        self._start_asgi_task(cycle, app)


async def _answer_empty(headers: Headers, scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


class _Answering:
    """An application that answers one request: its answer says whether it is the last one. Its task may be cancelled
    once the caller has left: then there is nothing to answer.

    Of a caller that leaves in the midst of a body, what has come of it is received before the news of that.
    """

    def __init__(
        self,
        app: "ASGI3Application",
        cycle: RequestResponseCycle,
        protocol: BoxProtocol,
    ) -> None:
        self._app = app
        self._cycle = cycle
        self._protocol = protocol

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        cycle = self._cycle

        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                cycle.keep_alive = not self._protocol.ends_with(cycle)
            with self._protocol.waiting(_bytes_of(message)):
                await send(message)

        async def received() -> Any:
            message = await receive()
            if message["type"] == "http.request" or not cycle.body:
                return message
            body, cycle.body = bytes(cycle.body), bytearray()
            return {"type": "http.request", "body": body, "more_body": True}

        try:
            await self._app(scope, received, sent)
        except asyncio.CancelledError:
            if not cycle.disconnected:
                raise


def _bytes_of(message: Any) -> int:
    """Return how much of an answer the application keeps while a message of it cannot be written."""
    if message["type"] == "http.response.start":
        return number(dict(message.get("headers", ())).get(SIZE)) or 0
    return len(message.get("body", b""))


def _only_computes(scope: Any) -> bool:
    """Whether a request changes nothing in the box: it need not be answered where nobody waits for that. A frame of a
    session counts, and goes on.
    """
    path: str = scope["path"]
    if scope["method"] != "POST" or not path.endswith(COMPUTING) or not path.startswith(("/v1/", "/v2/")):
        return False
    return not any(name == SESSION for name, _ in scope["headers"])
