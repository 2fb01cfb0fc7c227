"""Uvicorn's HTTP protocol with bounds on what a connection may take, and a shorter way for `/v2`: small requests begin
when their body is there, and are answered together.

Uvicorn begins a task with the headers, wakes it for the body, and writes an answer in two system calls in the midst of
the computing. It reads heads without end, waits without end for what does not come, and copies a body three times: out
of the buffer of the event loop, out of the parser, and to where it is gathered. Here only the head of a large `/v2`
request is parsed. It begins then, and may be refused; its body is read to where it belongs.
"""

import asyncio
import os
import socket
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from appliance.api.auth.callers import CONNECTION, Shown
from appliance.api.gateway import Gateway
from appliance.api.http.connections import Connections, Counted
from appliance.api.http.discard import discard, tcp_file
from appliance.api.http.exchange import EXCHANGE, AlignedBody, HttpExchange
from appliance.api.http.known_head import KnownHead, head_of
from appliance.api.http.pace import Pace, Phase, Watch
from appliance.api.http.problems import CONTENT_TYPE, plain_problem, problem_response
from appliance.api.http.upgrades import go_on_behind_head
from appliance.domain.errors import Busy, TooManyConnections

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

BODY_WATER_BYTES = 640 * 1024
"""Bytes of a body that may gather before the application is woken and reading pauses; a 224 × 224 picture as floats has
588 KiB.

Uvicorn's 64 KiB makes ten rounds of waking, pausing and resuming of it, half a millisecond."""

BODY_SMALL_BYTES = 16 * 1024
"""A body below this is kept before anybody looks at the request, and a copy of it costs less than preparing to do
without.
"""

HEADERS_MAX = 256
"""Of one request. Each costs a call, and a read of 256 KiB could hold sixty thousand."""
PIPELINE_MAX = 256
"""Requests of one connection that wait for the answer to the one before."""
STRANGER_WATER_BYTES = 64 * 1024
"""As `BODY_WATER_BYTES`, before a good key was shown on the connection."""
DROPPED_BYTES_MAX = 64 * 2**20
"""Of a body that still comes when its request is answered: dropped, for else the caller might lose the answer to a
reset."""
SHORT_DROPPED_BYTES_MAX = 512 * 1024
"""The same before a good key was shown, and of what is no request."""


class _Refused(Exception):
    """Ends the parsing of what a connection has sent; `slug` names a problem of HTTP."""

    def __init__(self, slug: str, detail: str) -> None:
        super().__init__(detail)
        self.slug = slug
        self.detail = detail


class BoxProtocol(HttpToolsProtocol):
    """For `uvicorn.Config(http=partial(BoxProtocol, ...))`."""

    def __init__(
        self, *args: Any, connections: Connections[Counted], pace: Pace, head_bytes_max: int, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.tenant: str | None = None
        """Of the last good key; None: none was shown."""
        self.shown: Shown | None = None
        self._all = connections
        self._pace = pace
        self._watch = Watch()
        self._head_bytes_max = head_bytes_max
        self._bare_bytes = 0
        """Parsed since a byte of a body or the end of a request: a head, or what stands around a chunked body."""
        self._received_bytes = 0
        self._requests = 0
        self._drains = 0
        self._ended = False
        """Whether the last answer is written, and what else comes is dropped."""
        self._water_bytes = STRANGER_WATER_BYTES
        self._dropped_bytes = 0
        self._refused: _Refused | None = None
        self._gathering: ASGI3Application | None = None
        """Who is to answer, or goes on with, the request whose body is being gathered."""
        self._left_bytes = 0
        """Of a body of known length, that the parser has not seen yet, and need not see."""
        self._head: bytes | KnownHead = b""
        """Of the last request of a known caller."""
        self._parser_waits = False
        """For a body that goes past it."""
        self._large: AlignedBody | None = None
        """The body that is being read to its place, past the parser."""
        self._surplus_bytes = 0
        """Of a body that is still to come, past the parser, and is dropped: its request is answered."""
        self._tcp_file: int | None = None
        """Where that can be dropped unread."""

    # -- the connection ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_protocol(Receiver(self))
        self._tcp_file = tcp_file(transport)
        self._keep_in_kernel(STRANGER_WATER_BYTES)
        try:
            gone = self._all.enter(self, self.client[0] if self.client else "")
        except Busy as error:
            self._end(*problem_response(error))
            return
        if gone is not None:
            gone.give_way()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.leave(self)
        self._gather_no_more()
        if self.cycle is not None:
            self.cycle.scope.pop(CONNECTION, None)  # type: ignore[misc]  # a circle else
        super().connection_lost(exc)

    def duplicate(self) -> socket.socket | None:
        """A socket of the caller's own at the same connection; None: it is closed already."""
        if self.transport.is_closing():
            return None
        return socket.socket(fileno=os.dup(self.transport.get_extra_info("socket").fileno()))

    def known(self, tenant: str) -> None:
        """Count for a tenant from now on. Raises: TooManyConnections."""
        try:
            gone = self._all.show(self, tenant)
        except TooManyConnections:
            self.cycle.keep_alive = False
            raise
        if self.tenant is None:
            self._keep_in_kernel(BODY_WATER_BYTES)
        self.tenant = tenant
        self._water_bytes = BODY_WATER_BYTES
        if self.cycle.more_body and not self.cycle.disconnected and len(self.cycle.body) <= BODY_WATER_BYTES:
            self.cycle.message_event.clear()  # not enough now to be woken for
        if gone is not None:
            gone.give_way()

    def _keep_in_kernel(self, count: int) -> None:
        """How much may have come before it is read: of many connections, all of that is read in one turn."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, count)

    def give_way(self) -> None:
        """Close at once; another needs the place."""
        self._abandon()
        self.transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether all that was asked is answered, and the system has all of the answer."""
        return self._phase() in (Phase.IDLE, Phase.ENDING) and not self.transport.get_write_buffer_size()

    def look(self, now_s: float) -> None:
        """Close the connection when it takes too long; to be called about once a second."""
        phase = self._phase()
        if phase is Phase.READING:  # what was taken of the answer since the buffer was last empty enough
            request, moved_bytes = self._requests + self._drains, -self.transport.get_write_buffer_size()
        else:
            request, moved_bytes = self._requests, self._received_bytes
        if not self._watch.is_too_slow(self._pace, phase, request, moved_bytes, now_s):
            return
        if phase is Phase.HEAD:
            self._refuse("request-timeout", f"no complete head came within {self._pace.head_s:g} s")
        elif phase is Phase.BODY:
            rate = self._pace.body_bytes_per_s_min
            self._refuse("request-timeout", f"less than {rate:g} bytes a second came for {self._pace.body_s:g} s")
        elif phase is Phase.IDLE:
            self.transport.close()
        else:
            self.give_way()

    def _phase(self) -> Phase:
        cycle = self.cycle
        if self._ended:
            return Phase.ENDING
        if self.flow.write_paused or self.transport.is_closing():
            return Phase.READING
        if cycle is None:
            return Phase.HEAD
        if cycle.response_complete:
            if cycle.more_body:
                return Phase.ENDING
            return Phase.IDLE if self.scope is cycle.scope else Phase.HEAD
        is_awaited = cycle.more_body and not self.flow.read_paused and not cycle.waiting_for_100_continue
        return Phase.BODY if is_awaited else Phase.OURS

    def resume_writing(self) -> None:
        self._drains += 1
        super().resume_writing()

    # -- refusing ------------------------------------------------------------------------------------------------------

    def _refuse(self, slug: str, detail: str) -> None:
        """Answer with a problem of HTTP where an answer can still be sent, and end the connection."""
        cycle = self.cycle
        is_answering = cycle is not None and not cycle.response_complete
        if is_answering and (cycle.response_started or not cycle.more_body or self.pipeline):
            self.give_way()
            return
        self._abandon()
        status, body = plain_problem(slug, detail, "")
        self._end(status, {"Content-Type": CONTENT_TYPE}, body)

    def _abandon(self) -> None:
        """Whoever works on a request of this connection learns that nobody waits for the answer."""
        self._gather_no_more()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.flow.resume_writing()

    def _gather_no_more(self) -> None:
        """The body that is being gathered will not be whole."""
        if self._gathering is not None:
            self._gathering = None
            exchange: HttpExchange = self.cycle.scope.pop(EXCHANGE)  # type: ignore[misc]
            exchange.close()

    def _end(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Write a last answer.

        What still comes is dropped for a moment: closed at once, the caller might lose the answer to a reset.
        """
        self._ended = True
        lines = [f"{name.lower()}: {value}" for name, value in headers.items()]
        lines += [f"content-length: {len(body)}", "connection: close", "", ""]
        self.transport.write(STATUS_LINE[status] + "\r\n".join(lines).encode() + body)
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    # -- what comes ----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes | memoryview) -> None:
        """Whatever comes, in order; `data` is used now and not kept."""
        count = len(data)
        self._received_bytes += count
        if self._ended:
            self._drop(count)
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
        except (httptools.HttpParserError, _Refused) as error:
            refused = error if isinstance(error, _Refused) else self._refused
            if refused is None:
                refused = _Refused("bad-request", "this is no HTTP/1.1 request")
            self._refuse(refused.slug, refused.detail)

    def _feed(self, data: memoryview) -> None:
        if self._bare_bytes > self._head_bytes_max and self._expects_head():
            self._feed_head(data)
        else:
            self._parse(data)
        if self._bare_bytes > self._head_bytes_max:
            raise self._head_too_large()
        self._leave_parser()

    def _parse(self, data: memoryview) -> None:
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as asked:  # to nothing that the box speaks
                data = data[asked.args[0] :]
                go_on_behind_head(self)
            else:
                return

    def _feed_large(self, data: memoryview) -> None:
        """A head with much behind it: when its request reads its body past the parser, only the head is parsed."""
        end = bytes(data[: self._head_bytes_max]).find(b"\r\n\r\n") + 4
        if end < 4:
            self._feed(data)
            return
        body = data[end:]
        self._bare_bytes -= len(body)
        self._feed(data[:end])
        if self._large is not None or self._surplus_bytes:
            self._received_bytes -= len(body)
            self.data_received(body)
        else:
            self._bare_bytes += len(body)
            self._feed(body)

    def _leave_parser(self) -> None:
        """Go past it with the rest of a body of known length: to its place, or nowhere, when it is answered already."""
        if self._left_bytes:
            self._parser_waits = True
            self._go_past_parser()

    def _go_past_parser(self) -> None:
        body = self.cycle.body
        if self.cycle.response_complete:
            self._surplus_bytes, self._left_bytes = self._left_bytes, 0
        elif self.tenant is not None and isinstance(body, AlignedBody):
            self._large, self._left_bytes = body, 0

    def _into_place(self, data: bytes | memoryview) -> bytes | memoryview:
        """What has come of the body goes there; returns what comes after it."""
        body = self._large
        assert body is not None
        if self.cycle.response_complete:  # answered before it was there
            self._large, self._surplus_bytes = None, len(body.missing)
            return self._without_surplus(data)
        missing = body.missing
        count = min(len(data), len(missing))
        missing[:count] = data[:count]
        self.in_place(count)
        return data[count:]

    def in_place(self, count: int) -> None:
        """So many bytes were read to where they belong."""
        body = self._large
        assert body is not None
        self._bare_bytes = 0
        body.filled(count)
        if not body.missing:
            self._large = None
            self._body_has_come()

    def place(self) -> memoryview | None:
        """Where the next bytes belong; None: they must be looked at."""
        if self._large is None or self._ended or self.cycle.response_complete:
            return None
        return self._large.missing

    def count(self, received: int) -> None:
        """Bytes that came past `data_received`."""
        self._received_bytes += received

    def _without_surplus(self, data: bytes | memoryview) -> bytes | memoryview:
        count = min(len(data), self._surplus_bytes)
        self._surplus_bytes -= count
        self._drop(count)
        if not self._surplus_bytes:
            self._body_has_come()
        return data[count:]

    def _drop_unread(self) -> None:
        """Drop what has come of a surplus, where the kernel can do that by itself."""
        if not self._surplus_bytes or self._tcp_file is None or self.transport.is_closing():
            return
        count = discard(self._tcp_file, self._surplus_bytes)
        self._received_bytes += count
        self._surplus_bytes -= count
        self._drop(count)
        if not self._surplus_bytes:
            self._body_has_come()

    def _body_has_come(self) -> None:
        """The parser, which knows nothing of the body, begins anew."""
        if self._parser_waits:
            self._parser_waits = False
            self.parser = httptools.HttpRequestParser(self)
        self.on_message_complete()

    def _expects_head(self) -> bool:
        return self.cycle is None or not self.cycle.more_body

    def _feed_head(self, data: memoryview) -> None:
        """Parse no more of a head than it may have, and the rest only when that has ended it."""
        before = self._bare_bytes - len(data)
        allowed = max(0, self._head_bytes_max - before)
        self._bare_bytes = before + min(allowed, len(data))
        self._parse(data[:allowed])
        if self._expects_head() and self._bare_bytes >= self._head_bytes_max:
            raise self._head_too_large()
        self._bare_bytes += len(data) - allowed
        self._parse(data[allowed:])

    def _head_too_large(self) -> _Refused:
        return _Refused("head-too-large", f"the head of a request may have {self._head_bytes_max} bytes")

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

    def _begin_known(self, known: KnownHead, data: bytes | memoryview) -> bytes | memoryview:
        """Begin with a request whose head is known; returns what is left of `data`: all, where it is another one."""
        assert known.size is not None
        end = known.length + known.size
        is_small = known.size < BODY_SMALL_BYTES
        if not known.begins(data) or (is_small and len(data) < end):
            return data
        self.scope = {**known.scope}  # type: ignore[typeddict-item]
        self._requests += 1
        self._dropped_bytes = 0
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

    def on_header(self, name: bytes, value: bytes) -> None:
        """As uvicorn's, but not without end."""
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))
        if len(self.headers) > HEADERS_MAX:
            self._stop("head-too-large", f"the head of a request may have {HEADERS_MAX} headers")

    def on_message_complete(self) -> None:
        """Begin with a request that waited for its body, at the end of the turn, and then perhaps without a task."""
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
        begin = partial(super()._start_asgi_task, cycle, app)
        if isinstance(app, Gateway):
            app.answer_soon(cycle.scope, begin)  # type: ignore[arg-type]
        else:
            begin()

    def on_body(self, body: bytes) -> None:
        """Gather the body; the end of the message wakes the application, or a full measure."""
        self._bare_bytes = 0
        self._left_bytes = max(0, self._left_bytes - len(body))
        if self.cycle.response_complete:
            self._drop(len(body))
            return
        self.cycle.body += body
        if len(self.cycle.body) > self._water_bytes:
            self.flow.pause_reading()
            self.cycle.message_event.set()

    def _drop(self, count: int) -> None:
        self._dropped_bytes += count
        is_short = self._ended or self.tenant is None
        if self._dropped_bytes > (SHORT_DROPPED_BYTES_MAX if is_short else DROPPED_BYTES_MAX):
            self.transport.abort()

    def _stop(self, slug: str, detail: str) -> None:
        """End the parsing from inside it."""
        self._refused = _Refused(slug, detail)
        raise self._refused

    # -- requests ------------------------------------------------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: "ASGI3Application") -> None:
        """Offer the handler of `/v2` the exchange.

        It begins when a small body is there; before a large one, so that a stranger's is refused unread.
        """
        self._requests += 1
        self._dropped_bytes = 0
        if cycle.scope["path"].startswith("/v2/"):
            exchange = self._offer_exchange(cycle, dict(cycle.scope["headers"]))
            if exchange.awaits_little(BODY_SMALL_BYTES):
                self._gathering = app
                return
            self._begin_large(cycle, app, exchange)
            return
        cycle.scope[CONNECTION] = self  # type: ignore[literal-required]
        super()._start_asgi_task(cycle, app)

    def _offer_exchange(self, cycle: RequestResponseCycle, headers: Mapping[bytes, bytes]) -> HttpExchange:
        exchange = HttpExchange(cycle, headers)
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
            super()._start_asgi_task(cycle, app)
        if body is not None and cycle is self.cycle and not cycle.waiting_for_100_continue:
            self._left_bytes = body.size - len(body)

    def on_response_complete(self) -> None:
        """As uvicorn's, without a timer for each request: `look` closes what is idle."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self.cycle.body:  # of a request that was refused unread: not to be kept until the next one
            self.cycle.body = bytearray()


class Receiver(asyncio.BufferedProtocol):
    """Where what comes on a connection is read to: a body's own place, or a buffer of all connections."""

    _BUFFER = memoryview(bytearray(256 * 1024))
    """Used up in the call that follows."""

    def __init__(self, protocol: BoxProtocol) -> None:
        self._protocol = protocol
        self._place: memoryview | None = None

    def get_buffer(self, sizehint: int) -> memoryview:
        self._place = self._protocol.place()
        return self._BUFFER if self._place is None else self._place

    def buffer_updated(self, nbytes: int) -> None:
        if self._place is None:
            self._protocol.data_received(self._BUFFER[:nbytes])
        else:
            self._place = None
            self._protocol.count(nbytes)
            self._protocol.in_place(nbytes)

    def eof_received(self) -> None:
        self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()
