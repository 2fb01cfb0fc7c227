"""Uvicorn's HTTP protocol with bounds on what a connection may take: how many there are, how long they may take for
what they are doing, how large heads are, how much of a body gathers. Who does not keep them is refused, and told so.

Uvicorn reads heads without end, and waits without end for what does not come.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from appliance.api.http.connections import Connections, Counted, group_of
from appliance.api.http.exchange import SIZE, number
from appliance.api.http.head_faults import head_fault
from appliance.api.http.pace import Pace, Phase, Watch
from appliance.api.http.problems import CONTENT_TYPE, plain_problem, problem_response
from appliance.api.http.proxies import Proxies
from appliance.api.http.turns import STRANGER, Turns
from appliance.api.http.unread import Unread
from appliance.api.http.upgrades import go_on_behind_head
from appliance.domain.errors import Busy, TooManyConnections

BODY_WATER_BYTES = 640 * 1024
"""Bytes of a body that may gather before the application is woken and reading pauses; a 224 × 224 picture as floats has
588 KiB.

Uvicorn's 64 KiB makes ten rounds of waking, pausing and resuming of it, half a millisecond."""

HEADERS_MAX = 256
"""Of one request. Each costs a call, and a read of 256 KiB could hold sixty thousand."""
STRANGER_WATER_BYTES = 64 * 1024
"""As `BODY_WATER_BYTES`, before a good key was shown on the connection."""
STAYING_BYTES_MAX = 64 * 2**20
"""Of a body that is not read: it is dropped, and the next request may come behind it. A connection with a larger one,
or one of unknown length, ends with the answer."""
STRANGER_STAYING_BYTES_MAX = 512 * 1024
"""The same before a good key was shown."""
LINGERING_BYTES_MAX = 2**30
"""What is dropped of a connection that ends with an answer: many clients send all of a body before they read, and would
lose the answer to a reset."""
SHORT_LINGERING_BYTES_MAX = 512 * 1024
"""The same where what comes is no request, or its body came too slowly."""


class Refused(Exception):
    """Ends the parsing of what a connection has sent; `slug` names a problem of HTTP."""

    def __init__(self, slug: str, detail: str) -> None:
        super().__init__(detail)
        self.slug = slug
        self.detail = detail


TLS_SLICE_BYTES = 256 * 1024
"""Bytes of an answer that TLS gets at once.

uvloop counts what waits in front of TLS, and not what waits behind it. Once a slice waits behind it, all further ones
wait in front.
"""


def _write_in_slices(transport: asyncio.WriteTransport, content: bytes) -> None:
    if len(content) <= TLS_SLICE_BYTES:
        transport.write(content)
        return
    whole = memoryview(content)
    for at in range(0, len(content), TLS_SLICE_BYTES):
        transport.write(whole[at : at + TLS_SLICE_BYTES])


class Line:
    """A connection as the answer to a request sees it: how uvicorn writes it, and what it does after the last one."""

    __slots__ = ("_protocol", "write")

    def __init__(self, protocol: "BoundedProtocol") -> None:
        self._protocol = protocol
        transport = protocol.transport
        is_tls = transport.get_extra_info("sslcontext") is not None
        self.write = partial(_write_in_slices, transport) if is_tls else transport.write

    def close(self) -> None:
        self._protocol.end()

    def is_closing(self) -> bool:
        return self._protocol.is_ending


class BoundedProtocol(HttpToolsProtocol):
    """A connection that counts among the others from its first byte on; `look` keeps its pace."""

    def __init__(
        self,
        *args: Any,
        connections: Connections[Counted],
        unread: Unread,
        pace: Pace,
        head_bytes_max: int,
        turns: Turns,
        proxies: Proxies,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.tenant: str | None = None
        """Of the last good key; None: none was shown."""
        self._all = connections
        self._unread = unread
        self._pace = pace
        self._turns = turns
        self._proxies = proxies
        self._stranger = STRANGER
        """The owner before a good key was shown."""
        self._watch = Watch()
        self._head_bytes_max = head_bytes_max
        self._bare_bytes = 0
        """Parsed since a byte of a body or the end of a request: a head, or what stands around a chunked body."""
        self.received_bytes = 0
        self._requests = 0
        self._drains = 0
        self._waiting_bytes = 0
        """Of an answer that is made and cannot be written before the caller has read more of those before it."""
        self._ended = False
        """Whether the last answer is written, and what else comes is dropped."""
        self._water_bytes = STRANGER_WATER_BYTES
        self._dropped_bytes = 0
        self._dropped_bytes_max = LINGERING_BYTES_MAX
        self._refused: Refused | None = None

    # -- the connection ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._line = Line(self)
        address = self.client[0] if self.client else ""
        self._stranger = STRANGER + group_of(address)
        self._keep_in_kernel(STRANGER_WATER_BYTES)
        try:
            gone = self._all.enter(self, address)
        except Busy as error:
            self._end(*problem_response(error))
            return
        if gone is not None:
            gone.give_way()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.leave(self)
        self._unread.end(self)
        self._gather_no_more()
        super().connection_lost(exc)

    def known(self, tenant: str) -> None:
        """Count for a tenant from now on. Raises: TooManyConnections."""
        try:
            gone = self._all.show(self, tenant)
        except TooManyConnections:
            if self.cycle is not None:
                self.cycle.keep_alive = False
            raise
        if self.tenant is None:
            self._keep_in_kernel(BODY_WATER_BYTES)
        self.tenant = tenant
        self._water_bytes = BODY_WATER_BYTES
        cycle = self.cycle
        is_gathering = cycle is not None and cycle.more_body and not cycle.disconnected
        if is_gathering and len(cycle.body) <= BODY_WATER_BYTES:
            cycle.message_event.clear()  # not enough now to be woken for
        if gone is not None:
            gone.give_way()

    def _keep_in_kernel(self, count: int) -> None:
        """How much may have come before it is read: of many connections, all of that is read in one turn."""
        connection = self.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, count)
        if connection.family != socket.AF_UNIX:  # a window once made small stays so, whatever room there is
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, 2 * count)

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
            request, moved_bytes = self._requests, self.received_bytes
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

    @property
    def unread_bytes(self) -> int:
        """Of answers, that wait for the caller."""
        return int(self.transport.get_write_buffer_size()) + self._waiting_bytes

    @contextmanager
    def waiting(self, count: int) -> Iterator[None]:
        """Count so many bytes of an answer while they wait to be written."""
        if not self.flow.write_paused:
            yield
            return
        self._waiting_bytes += count
        self.congested()
        try:
            yield
        finally:
            self._waiting_bytes -= count

    def congested(self) -> None:
        """More waits for the caller than before."""
        self._unread.grew(self)

    def drained(self) -> None:
        """The caller has read most of what waited."""
        self._unread.end(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.congested()

    def resume_writing(self) -> None:
        self._drains += 1
        self.drained()
        super().resume_writing()

    # -- its part of a turn --------------------------------------------------------------------------------------------

    @property
    def owner(self) -> str:
        """The owner that work for the connection counts for (`Turns`): its tenant, else its address."""
        return self.tenant or self._stranger

    @property
    def is_over(self) -> bool:
        """Whether the owner has had its part of this turn of the event loop. The first request of a connection does not
        wait behind others of its owner: of new connections there are only so many in a turn.
        """
        return not self._is_at_first_request and self._turns.is_over(self.owner)

    @property
    def _is_at_first_request(self) -> bool:
        return self._requests <= 1 and not self._ended

    def take_turn(self, work: Callable[[], None]) -> None:
        """Do work on what was read; where the owner has had its part then, the next is read in a later turn."""
        began_ns = self._turns.now_ns()
        work()
        self._turns.took(self.owner, self._turns.now_ns() - began_ns)
        if self.is_over and not self.transport.is_closing():
            self.transport.pause_reading()
            self._turns.next(self.owner, self._read_on)

    def _read_on(self) -> None:
        if not self.transport.is_closing() and not self.flow.read_paused:
            self.transport.resume_reading()

    # -- the last answer -----------------------------------------------------------------------------------------------

    def ends_with(self, cycle: RequestResponseCycle) -> bool:
        """Whether the connection ends with the answer to a request, of which nothing is written yet: the caller wishes
        it, or the answer comes before a body of which the rest is not worth waiting for.
        """
        if not cycle.keep_alive or not cycle.more_body:
            return not cycle.keep_alive
        headers = dict(cycle.scope["headers"])
        size = None if b"transfer-encoding" in headers else number(headers.get(SIZE, b"0"))
        if size is None or cycle.waiting_for_100_continue:  # the caller may send it all the same, or not
            return size != 0
        return size > (STRANGER_STAYING_BYTES_MAX if self.tenant is None else STAYING_BYTES_MAX)

    @property
    def is_ending(self) -> bool:
        """Whether nothing more can be written."""
        return self._ended or self.transport.is_closing()

    def end(self) -> None:
        """The last answer is written. Closed while more comes, the connection would be reset and the caller lose the
        answer: what still comes is dropped until the caller closes, for so long and so much as is allowed.
        """
        if self.is_ending:
            return
        if not self.pipeline and not self.cycle.more_body:
            self.transport.close()
        else:
            self._linger(LINGERING_BYTES_MAX)

    def _linger(self, bytes_max: int) -> None:
        self._ended = True
        self._dropped_bytes, self._dropped_bytes_max = 0, bytes_max
        self.pipeline.clear()
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        elif self._expects_head():
            self.transport.close()

    def _refuse(self, slug: str, detail: str) -> None:
        """Answer with a problem of HTTP where an answer can still be sent, and end the connection."""
        if self.is_ending:
            return
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

    def _end(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Write a last answer."""
        lines = [f"{name.lower()}: {value}" for name, value in headers.items()]
        lines += [f"content-length: {len(body)}", "connection: close", "", ""]
        self.transport.write(STATUS_LINE[status] + "\r\n".join(lines).encode() + body)
        self._linger(SHORT_LINGERING_BYTES_MAX)

    def _drop(self, count: int) -> None:
        self._dropped_bytes += count
        if self._dropped_bytes > self._dropped_bytes_max:
            self.transport.abort()

    def _stop(self, slug: str, detail: str) -> None:
        """End the parsing from inside it."""
        self._refused = Refused(slug, detail)
        raise self._refused

    # -- what is parsed ------------------------------------------------------------------------------------------------

    def _feed(self, data: memoryview) -> None:
        """Parse what has come. Raises: Refused, httptools.HttpParserError."""
        if self._bare_bytes > self._head_bytes_max and self._expects_head():
            self._feed_head(data)
        else:
            self._parse(data)
        if self._bare_bytes > self._head_bytes_max:
            raise self._head_too_large()

    def _parse(self, data: memoryview) -> None:
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as asked:
                data = data[asked.args[0] :]
                if self._should_upgrade():
                    self._upgrade(data)
                    return
                go_on_behind_head(self)  # to nothing that the box speaks there
            else:
                return

    def _upgrade(self, data: memoryview) -> None:
        """Go on in the protocol that the head asks for; `data` has come behind it. Where `_should_upgrade` says so."""
        raise NotImplementedError

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

    def _expects_head(self) -> bool:
        return self.cycle is None or not self.cycle.more_body

    def _head_too_large(self) -> Refused:
        return Refused("head-too-large", f"the head of a request may have {self._head_bytes_max} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """As uvicorn's, but not without end."""
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))
        if len(self.headers) > HEADERS_MAX:
            self._stop("head-too-large", f"the head of a request may have {HEADERS_MAX} headers")

    def on_headers_complete(self) -> None:
        """Begin with a request whose head HTTP allows; of one that a proxy sent on, as the proxy got it."""
        if fault := head_fault(self.parser.get_http_version(), self.headers):
            self._stop(*fault)
        self._proxies.read(self.scope)  # type: ignore[arg-type]
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Gather the body; the end of the message wakes the application, or a full measure."""
        self._bare_bytes = 0
        if self.cycle.response_complete:
            self._drop(len(body))
            return
        self.cycle.body += body
        if len(self.cycle.body) > self._water_bytes:
            self.flow.pause_reading()
            self.cycle.message_event.set()
