"""A device's line to the box: the thread that holds its sockets, sends what the sender says, and takes what comes.

One thread with an event loop of its own. The line is opened again whenever it breaks, with the same session; where a
frame is overdue by far, another connection is raced beside it, because after seconds without a link a fresh one is
there sooner than the old one goes on. Results, plans and notices are handed over in the thread; whoever takes them
must be quick.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

from appliance.client.device.encoding import Encode, Frame
from appliance.client.device.session import Box
from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.session import FrameEnd
from appliance.policies.sending.sender import Send, Sender
from appliance.wire.stream import (
    Ack,
    BoxClock,
    DeviceClock,
    ErrorMessage,
    FrameHead,
    Notice,
    PlanMessage,
    ResultMessage,
    read_box_message,
    write_message,
)

AWAKE_S = 0.1
"""A line that sends nothing for longer is sent a few bytes: TCP begins slowly again after a quarter of a second."""
DIAL_EVERY_S = 0.25
"""Between two tries to connect: the first packet of one that was lost comes again only after a second."""
SHORT_S = 1.0
"""A line that did not last so long is made anew after such a pause: the box closes it, and would close the next one."""
DIALS_MAX = 4
"""Tries under way at once."""
DIAL_S = 5.0
"""One try at most."""
DIAL_SLOWLY_S = 2.0
"""Between tries when there has been no line for a while: the box is off, or the device out of reach."""
PATIENCE_S = 15.0
ASKED_MAX = 16
"""Clocks of ours that are remembered until they are answered."""
CHUNK_BYTES = 16_384
"""Of a picture; between two of them a frame that turns out to be hopeless is withdrawn."""
MESSAGE_BYTES_MAX = 16 * 2**20
"""Of what the box sends."""
REFUSED = (401, 403, 404)
"""A stream answered so is not there for this device: the session has ended, or the key is no longer good."""


class Receiver(Protocol):
    """Who is told, in the thread of the line, with the lock held."""

    def planned(self, plan: PlanMessage) -> None: ...

    def answered(self, result: ResultMessage, picture: bytes | None, end: FrameEnd | None, now_ms: float) -> None: ...

    def noticed(self, notice: Notice) -> None: ...

    def refused(self, error: Exception) -> None: ...

    def reports(self) -> dict[str, Any]: ...


class Line:
    """`start`, then `wake` whenever there may be something to send; `stop` waits for the thread.

    `lock` is held for every touch of `sender`, never while waiting. `frame_of` gives the frame of a number; it is asked
    with the lock held.
    """

    def __init__(
        self,
        box: Box,
        session: str,
        sender: Sender,
        lock: threading.Lock,
        frame_of: Callable[[int], Frame | None],
        receiver: Receiver,
        clock: Clock,
        encode: Encode,
    ) -> None:
        self._encode = encode
        self._box = box
        self._session = session
        self._sender = sender
        self._lock = lock
        self._frame_of = frame_of
        self._receiver = receiver
        self._clock = clock
        self._loop = asyncio.new_event_loop()
        self._work = asyncio.Event()
        self._leaving = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="line", daemon=True)
        self._sent_ms = 0.0
        self._clocks: tuple[float, float] | None = None
        self._asked: deque[float] = deque(maxlen=ASKED_MAX)
        """When clocks were sent behind no frame: what is behind one waits for it."""
        self._variant: str | None = None
        self._trust = box.trust
        self.connects = 0
        """Connections so far: the first one and every later one."""

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def wake(self) -> None:
        """Something may be there to send; from any thread."""
        self._set(self._work)

    def stop(self) -> None:
        """Close the line and end the thread."""
        if self._thread.is_alive():
            self._set(self._leaving)
            self._thread.join()

    def _set(self, event: asyncio.Event) -> None:
        with suppress(RuntimeError):  # the thread has ended, and its loop is closed: there is nobody to be told
            self._loop.call_soon_threadsafe(event.set)

    def now_ms(self) -> float:
        """The device's clock."""
        return self._clock.now_ns() / NS_PER_MS

    async def _pause(self, seconds: float) -> None:
        await self._clock.sleep_until_ns(self._clock.now_ns() + int(seconds * NS_PER_S))

    # -- connections ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._until_left())
        except Exception as error:  # our own mistake: a line that began again would make it again, for ever
            with self._lock:
                self._receiver.refused(error)
            raise
        finally:
            self._loop.close()

    async def _until_left(self) -> None:
        living = asyncio.create_task(self._live())
        leaving = asyncio.create_task(self._leaving.wait())
        await asyncio.wait({living, leaving}, return_when=asyncio.FIRST_COMPLETED)
        await _ended(leaving, living)

    async def _live(self) -> None:
        line: ClientConnection | None = None
        try:
            while True:
                line = line or await self._dialled()
                if line is None:
                    return
                began_ms = self.now_ms()
                line = await self._carried(line)
                with self._lock:
                    self._sender.interrupted()
                if line is None and self.now_ms() - began_ms < SHORT_S * 1000.0:
                    await self._pause(DIAL_EVERY_S)
        finally:
            if line is not None:
                line.transport.abort()

    async def _carried(self, line: ClientConnection) -> ClientConnection | None:
        """Use a connection until it breaks, or until a fresh one beside it was quicker, which is returned."""
        self.connects += 1
        self._clocks = None
        self._work.set()
        tasks = [asyncio.create_task(one) for one in (self._receive(line), self._send(line), self._keep_awake(line))]
        racing = asyncio.create_task(self._raced())
        try:
            await asyncio.wait({*tasks, racing}, return_when=asyncio.FIRST_COMPLETED)
            return racing.result() if racing.done() else None
        finally:
            await _ended(*tasks, *([] if racing.done() else [racing]))
            line.transport.abort()

    async def _raced(self) -> ClientConnection | None:
        """Another connection, as soon as the line looks dead and one is there. Returns None where none is allowed."""
        while True:
            await self._pause(AWAKE_S)
            with self._lock:
                is_silent = self._sender.is_silent(self.now_ms())
            if is_silent:
                return await self._dialled()

    async def _dialled(self) -> ClientConnection | None:
        """A connection; tries until there is one. None: the box does not have the session for us."""
        began_ms, tries = self.now_ms(), set[asyncio.Task[ClientConnection]]()
        try:
            while True:
                if len(tries) < DIALS_MAX:
                    tries.add(asyncio.create_task(self._dial()))
                is_patient = self.now_ms() - began_ms > PATIENCE_S * 1000.0
                pause_s = DIAL_SLOWLY_S if is_patient else DIAL_EVERY_S
                done, tries = await asyncio.wait(tries, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    error = task.exception()
                    if error is None:
                        tries |= done - {task}
                        return task.result()
                    if isinstance(error, InvalidStatus) and error.response.status_code in REFUSED:
                        self._receiver.refused(error)
                        return None
                    if not isinstance(error, OSError | WebSocketException):
                        raise error
                if done:
                    await self._pause(pause_s)  # refused at once: not again at once
        finally:
            await _ended(*tries)

    async def _dial(self) -> ClientConnection:
        with self._lock:
            seen = self._sender.known_to
        return await connect(
            self._box.stream_url(self._session, seen),
            additional_headers=self._box.headers,
            ssl=self._trust,
            compression=None,
            proxy=None,
            open_timeout=DIAL_S,
            ping_interval=None,  # our own clock messages keep the line, and tell more
            max_size=MESSAGE_BYTES_MAX,
            close_timeout=1.0,
        )

    # -- sending -------------------------------------------------------------------------------------------------------

    async def _send(self, line: ClientConnection) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while (jpeg := self._made()) is not None:
                head, body = jpeg
                await line.send(write_message(head))
                await line.send(self._chunks(head.frame, body))

    def _made(self) -> tuple[FrameHead, bytes] | None:
        """The next frame to send, encoded; from here on it counts as sent."""
        while True:
            with self._lock:
                send = self._sender.next(self.now_ms())
                frame = None if send is None else self._frame_of(send.frame)
            if send is None:
                return None
            made = self._encoded(send, frame)
            if made is not None:
                return made

    def _encoded(self, send: Send, frame: Frame | None) -> tuple[FrameHead, bytes] | None:
        """A frame in hand as its messages; None where it had to be given up."""
        again: Send | None = send
        body = b""
        for _ in range(2):
            assert again is not None
            send = again
            try:
                body = b"" if frame is None else self._encode(frame, send.size_px, send.quality)
            except ValueError:
                body = b""
            if not body:
                with self._lock:
                    self._sender.given_up()
                return None
            with self._lock:
                again = self._sender.smaller(len(body), self.now_ms())
            if again is None or isinstance(frame, bytes):
                break
        with self._lock:
            self._sender.sent(len(body), self.now_ms())
            reports = self._receiver.reports()
        self._sent_ms = self.now_ms()
        is_as_it_came = isinstance(frame, bytes)
        head = FrameHead(
            frame=send.frame,
            captured_ms=send.captured_ms,
            bytes=len(body),
            variant=self._variant,
            size=None if is_as_it_came else send.size_px,  # the box reads it from the picture
            quality=None if is_as_it_came else send.quality,
            **reports,
        )
        return head, body

    async def _chunks(self, frame: int, body: bytes) -> AsyncIterator[bytes]:
        """A picture in parts; it ends where the box has said meanwhile that it will not be in time."""
        for begin in range(0, len(body), CHUNK_BYTES):
            yield body[begin : begin + CHUNK_BYTES]
            with self._lock:
                if not self._sender.is_under_way(frame):
                    return

    async def _keep_awake(self, line: ClientConnection) -> None:
        while True:
            await self._say_clock(line)
            while (left_s := AWAKE_S - (self.now_ms() - self._sent_ms) / 1000.0) > 0.0:
                await self._pause(left_s)

    async def _say_clock(self, line: ClientConnection) -> None:
        of_ms, of_came_ms = self._clocks or (None, None)
        with self._lock:
            reports = self._receiver.reports()
            is_idle = self._sender.is_idle
        self._sent_ms = self.now_ms()
        if is_idle:
            self._asked.append(self._sent_ms)
        message = DeviceClock(sent_ms=self._sent_ms, of_ms=of_ms, of_came_ms=of_came_ms, **reports)
        await line.send(write_message(message))

    # -- receiving -----------------------------------------------------------------------------------------------------

    async def _receive(self, line: ClientConnection) -> None:
        announced: ResultMessage | None = None
        async for content in line:
            now_ms = self.now_ms()
            if isinstance(content, bytes):
                if announced is not None:
                    self._take_result(announced, content, now_ms)
                announced = None
                continue
            try:
                message = read_box_message(content)
            except ValueError:
                return  # what it says cannot be trusted any more
            if isinstance(message, ResultMessage) and message.picture is not None:
                announced = message
            else:
                self._take(message, now_ms)

    def _take(self, message: Any, now_ms: float) -> None:
        match message:
            case Ack():
                with self._lock:
                    self._sender.acknowledged(message.frame, now_ms)
                self._work.set()
            case ResultMessage():
                self._take_result(message, None, now_ms)
            case PlanMessage():
                self._variant = message.variant
                with self._lock:
                    self._receiver.planned(message)
            case BoxClock():
                self._clocks = message.sent_ms, now_ms
                self._observe_round_trip(message, now_ms)
            case Notice():
                with self._lock:
                    self._receiver.noticed(message)
            case ErrorMessage() if message.frame is not None:
                with self._lock:  # one that the box does not take, and does not count, was sent all the same
                    self._sender.ended(message.frame, message.outcome or FrameEnd.LOST)
                self._work.set()
            case _:
                pass  # an error of the connection, which is closed next; or a newer box's message

    def _take_result(self, result: ResultMessage, picture: bytes | None, now_ms: float) -> None:
        with self._lock:
            if result.outcome is FrameEnd.ANSWERED:
                end = self._sender.answered(result.frame, now_ms)
            else:
                end = self._sender.ended(result.frame, result.outcome, result.cause)
            self._receiver.answered(result, picture, end, now_ms)
        self._work.set()

    def _observe_round_trip(self, clock: BoxClock, now_ms: float) -> None:
        """Of an exchange while nothing else was on its way; frames would count as part of it."""
        with self._lock:
            if clock.of_ms in self._asked and self._sender.is_idle:
                self._sender.transfer.observe_round_trip(now_ms - clock.of_ms - (clock.sent_ms - clock.of_came_ms))


async def _ended(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel what still runs; what came of it is nobody's concern any more, but for our own mistakes."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, ClientConnection):
            outcome.transport.abort()
        elif isinstance(outcome, Exception) and not isinstance(outcome, OSError | WebSocketException):
            raise outcome
