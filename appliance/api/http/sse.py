"""Server-sent events: one frame per event, and a heartbeat so that proxies and readers know the line is alive."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, TypeVar

from starlette.responses import StreamingResponse

T = TypeVar("T")
HEARTBEAT_S = 15.0
HEARTBEAT = b": still here\n\n"


def frame(data: Any, *, event: str, id: int | str | None = None) -> bytes:
    """One event as bytes; `data` is sent as one line of JSON."""
    head = "" if id is None else f"id: {id}\n"
    name = event.replace("\n", " ").replace("\r", " ")
    return f"{head}event: {name}\ndata: {json.dumps(data, default=str, ensure_ascii=False)}\n\n".encode()


async def beating(items: AsyncIterator[T], seconds: float = HEARTBEAT_S) -> AsyncGenerator[T | None, None]:
    """`items` as they come, and None whenever none came for `seconds`, and at the beginning.

    The source is closed at the end.

    By the first None the source has begun: what happens after it is not missed.
    """
    waiting: asyncio.Task[T] | None = None
    timeout = 0.0
    try:
        while True:
            waiting = waiting or asyncio.create_task(_next(items))
            done, _ = await asyncio.wait({waiting}, timeout=timeout)
            timeout = seconds
            if not done:
                yield None
                continue
            finished, waiting = waiting, None
            try:
                yield finished.result()
            except StopAsyncIteration:
                return
    finally:
        await _abandon(waiting)
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _abandon(waiting: "asyncio.Task[T] | None") -> None:
    if waiting is not None:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


def event_stream(frames: AsyncIterator[bytes]) -> StreamingResponse:
    """The answer that carries the frames; not to be cached or buffered on the way."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(frames, media_type="text/event-stream", headers=headers)
