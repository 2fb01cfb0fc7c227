"""A box as a device sees it: sessions over HTTP and their streams, on a real port, with answers that the test makes.

It speaks by `appliance/wire/stream.py` alone, so that the device's side is tested where no network runs.
"""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from appliance.clock import NS_PER_MS, SystemClock
from appliance.domain.session import FrameEnd, NoticeKind
from appliance.domain.states import SessionState
from appliance.wire.stream import (
    Ack,
    BoxClock,
    ErrorMessage,
    FrameHead,
    Message,
    Notice,
    Picture,
    PlanMessage,
    ResultMessage,
    read_device_message,
    write_message,
)

Answer = Callable[[int, bytes], dict[str, Any]]
DECISIONS = {"count": 7, "mean_ms": 1.5, "p99_ms": 4.0}


@dataclass
class SessionBox:
    """What a test sets and what it sees; fields are read and written from any thread."""

    answer: Answer
    """Frame and picture → what `predict` answers."""
    plan: PlanMessage = field(default_factory=lambda: PlanMessage(number=1, variant="a-320", size=320, quality=75))
    delay_s: float = 0.0
    """From a picture to its result."""
    is_deaf: bool = False
    """Takes frames, and neither acknowledges nor answers."""
    drops: frozenset[int] = frozenset()
    """Frames that are dropped with their head."""
    errors: frozenset[int] = frozenset()
    """Frames whose picture cannot be read."""
    untaken: frozenset[int] = frozenset()
    """Frames whose number is refused."""
    picture: bytes | None = None
    """Every result is this picture."""
    refusal: dict[str, Any] | None = None
    """The problem document that a session is refused with."""
    has_session: bool = True
    closes: bool = False
    """Every line, as soon as it is there."""
    orders: list[dict[str, Any]] = field(default_factory=list)
    heads: list[FrameHead] = field(default_factory=list)
    bodies: dict[int, bytes] = field(default_factory=dict)
    clocks: int = 0
    seen: list[str | None] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    url: str = ""
    _lines: list[WebSocket] = field(default_factory=list)
    _loop: asyncio.AbstractEventLoop | None = None

    def say(self, message: Message) -> None:
        """To the newest line."""
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._lines[-1].send_text(write_message(message)), self._loop).result(5)

    def cut(self) -> None:
        """Every line breaks."""
        assert self._loop is not None
        for line in self._lines:
            asyncio.run_coroutine_threadsafe(_closed(line), self._loop).result(5)

    def end(self, reason: str) -> None:
        """The session is over."""
        self.say(Notice(kind=NoticeKind.ENDED, state=SessionState.ENDED, reason=reason))

    async def begin(self, request: Request) -> Response:
        order = json.loads(await request.body())
        self.keys.append(request.headers.get("authorization"))
        self.orders.append(order)
        if self.refusal is not None:
            return JSONResponse(self.refusal, self.refusal["status"], media_type="application/problem+json")
        return JSONResponse({"id": "s-1", "state": "served", "promise": order["promise"], "plan": None}, 201)

    async def show(self, request: Request) -> Response:
        return JSONResponse(
            {"id": request.path_params["session"], "state": "served", "windows": 2, "kept": 1, "decisions": DECISIONS}
        )

    async def leave(self, request: Request) -> Response:
        self.ended.append(request.path_params["session"])
        return Response(status_code=204)

    async def stream(self, line: WebSocket) -> None:
        if not self.has_session:
            await line.close()  # before it was accepted: 403
            return
        self.seen.append(line.query_params.get("seen"))
        await line.accept()
        self._loop = asyncio.get_running_loop()
        self._lines.append(line)
        if self.closes:
            await line.close(1008)
            return
        await line.send_text(write_message(self.plan))
        try:
            async with asyncio.TaskGroup() as group:
                await self._serve(line, group)
        except* (WebSocketDisconnect, RuntimeError):
            pass  # the line broke, also in the midst of an answer

    async def _serve(self, line: WebSocket, group: asyncio.TaskGroup) -> None:
        head: FrameHead | None = None
        while True:
            content = await line.receive()
            if content["type"] == "websocket.disconnect":
                raise WebSocketDisconnect
            if content.get("bytes") is not None:
                assert head is not None
                self.bodies[head.frame] = content["bytes"]
                if not self.is_deaf and head.frame not in self.drops | self.untaken:
                    await line.send_text(write_message(Ack(frame=head.frame, bytes=len(content["bytes"]), took_ms=1.0)))
                    group.create_task(self._answer(line, head.frame, content["bytes"]))
                continue
            message = read_device_message(content["text"])
            if isinstance(message, FrameHead):
                head = message
                self.heads.append(head)
                if head.frame in self.drops:
                    dropped = ResultMessage(frame=head.frame, outcome=FrameEnd.DROPPED, cause="hopeless")
                    await line.send_text(write_message(dropped))
                if head.frame in self.untaken:
                    problem = {"type": "/problems/frame-mismatch", "title": "Not that frame", "status": 409}
                    await line.send_text(write_message(ErrorMessage(problem=problem, frame=head.frame)))
            else:
                self.clocks += 1
                now_ms = SystemClock().now_ns() / NS_PER_MS + 1e6
                await line.send_text(
                    write_message(BoxClock(sent_ms=now_ms, of_ms=message.sent_ms, of_came_ms=now_ms - 0.01))
                )

    async def _answer(self, line: WebSocket, frame: int, body: bytes) -> None:
        await asyncio.sleep(self.delay_s)  # noqa: TID251  # a real box takes real time
        if frame in self.errors:
            problem = {"type": "/problems/bad-media", "title": "Bad media", "status": 422}
            await line.send_text(write_message(ErrorMessage(problem=problem, frame=frame, outcome=FrameEnd.DROPPED)))
            return
        answer = {"variant": self.plan.variant, **self.answer(frame, body)}
        picture = self.picture and Picture(media_type="image/png", bytes=len(self.picture))
        result = ResultMessage(frame=frame, outcome=FrameEnd.ANSWERED, answer=answer, picture=picture or None)
        await line.send_text(write_message(result))
        if self.picture:
            await line.send_bytes(self.picture)


async def _closed(line: WebSocket) -> None:
    try:
        await line.close(1011)
    except RuntimeError:
        pass  # it was closed


@contextmanager
def session_box(answer: Answer, **facts: Any) -> Iterator[SessionBox]:
    """A box that listens; stopped on the way out."""
    box = SessionBox(answer, **facts)
    app = Starlette(
        routes=[
            Route("/v1/sessions", box.begin, methods=["POST"]),
            Route("/v1/sessions/{session}", box.show, methods=["GET"]),
            Route("/v1/sessions/{session}", box.leave, methods=["DELETE"]),
            WebSocketRoute("/v1/sessions/{session}/stream", box.stream),
        ]
    )
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()  # who comes before the server runs waits for it
    config = uvicorn.Config(app, log_level="error", lifespan="off", ws="websockets-sansio", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    box.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        yield box
    finally:
        server.should_exit = True
        thread.join(120)
        listener.close()
