"""Server-sent events, written and read."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from appliance.api.http.sse import HEARTBEAT, beating, frame
from appliance.client.sse import events

pytestmark = pytest.mark.anyio


def test_sse_events_are_read_back_as_written() -> None:
    """Names with spaces, texts with line ends and letters of any alphabet; heartbeats are no events."""
    data = {"text": "a\nb\r\nÄ ☃", "number": 1.5}
    stream = HEARTBEAT + frame(data, event="variant loaded", id=7) + HEARTBEAT + frame({}, event="a\nevil: b")
    one, two = events(stream.decode().split("\n"))
    assert (one.event, one.id) == ("variant loaded", "7")
    assert json.loads(one.data) == data
    assert (two.event, two.data) == ("a evil: b", "{}")


async def test_sse_heartbeats_come_while_the_source_is_silent() -> None:
    """None for each silent moment, then the item, then the end; nothing is lost by waiting in slices."""
    go = asyncio.Event()
    closed: list[bool] = []

    async def source() -> AsyncIterator[int]:
        try:
            yield 1
            await go.wait()
            yield 2
        finally:
            closed.append(True)

    seen: list[int | None] = []
    async for item in beating(source(), 0.01):
        seen.append(item)
        if seen.count(None) == 2:
            go.set()
    assert [item for item in seen if item is not None] == [1, 2]
    assert seen.count(None) >= 2
    assert closed == [True]


async def test_sse_reader_that_leaves_early_closes_the_source() -> None:
    """A reader that hangs up leaves no subscription behind."""
    closed: list[bool] = []

    async def source() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    stream = beating(source(), 0.01)
    async for _ in stream:
        break
    await stream.aclose()
    assert closed == [True]
