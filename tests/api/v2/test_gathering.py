"""A large body and a run are waited for without a task; who waits for a body is done with as soon as it cannot come."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from appliance.api.gateway import Gateway
from appliance.api.http.limits import Receive, Scope
from appliance.api.http.turns import Turns
from appliance.api.protocol import BoxProtocol
from appliance.api.v2.handler import V2
from appliance.api.v2.messages import Answer
from appliance.clock import SystemClock
from appliance.runtime.serving.eager import in_task
from tests.api.http.exchanges import HandTransport, connect, head
from tests.fakes.clock import settle, story

BODY = bytes(range(256)) * 800


class Reading(V2):
    """Reads a body, then has its answer at once, or only in a task."""

    def __init__(self, *, in_the_end: bool) -> None:
        self.events: list[str] = []
        self.run: asyncio.Future[None] | None = None
        """What it waits for between the two."""
        self._in_the_end = in_the_end

    async def _made(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive) -> Answer:
        self.events.append("begun")
        try:
            message = await receive()
            self.events.append("task" if _is_in_task() else "no task")
            if self.run is not None:
                await self.run
                self.events.append("ran in a task" if _is_in_task() else "ran")
            if self._in_the_end:
                await in_task()
            return 200, [], b"%d" % len(message["body"])
        finally:
            self.events.append("over")


def _is_in_task() -> bool:
    return asyncio.current_task() is not None


def _connected(*, in_the_end: bool = False) -> tuple[BoxProtocol, HandTransport, Reading]:
    async def service(*_: Any) -> None:
        raise AssertionError("only /v2 is asked")

    reading = Reading(in_the_end=in_the_end)
    gateway = Gateway(lambda: None, reading, service, Turns(SystemClock()))  # type: ignore[arg-type, return-value]
    protocol, transport = connect(gateway)
    protocol.app = gateway  # uvicorn's wrapper around it
    protocol.tenant = "harbour"
    return protocol, transport, reading


async def _outside_tasks(*calls: Any) -> None:
    """As the event loop calls a protocol."""
    for call in calls:
        asyncio.get_running_loop().call_soon(*call)
    await settle()


@pytest.mark.parametrize("in_the_end", [False, True])
@story
async def test_request_begins_at_its_head_and_runs_when_its_body_is_whole(in_the_end: bool) -> None:
    """Only then it may need a task."""
    protocol, transport, reading = _connected(in_the_end=in_the_end)
    for number in (1, 2, 3, 4):  # the last two with a known head
        await _outside_tasks((protocol.data_received, head(len(BODY)) + BODY[:50_000]))
        assert (reading.events[-1], len(transport.written)) == ("begun", number - 1)
        await _outside_tasks((protocol.data_received, BODY[50_000:100_000]), (protocol.data_received, BODY[100_000:]))
        assert reading.events[-3:] == ["begun", "no task", "over"]
        assert transport.written[number - 1].endswith(b"\r\n\r\n%d" % len(BODY))


@pytest.mark.parametrize("end", ["lost", "gives way", "too slow"])
@story
async def test_request_whose_body_does_not_come_is_released_at_once(end: str) -> None:
    """When its connection ends, not when garbage is collected."""
    protocol, transport, reading = _connected()
    transport.abort = transport.close  # type: ignore[method-assign]
    transport.can_write_eof = lambda: False  # type: ignore[method-assign]
    await _outside_tasks((protocol.data_received, head(len(BODY)) + BODY[:50_000]))
    assert reading.events == ["begun"]
    if end == "lost":
        protocol.connection_lost(None)
    elif end == "gives way":
        protocol.give_way()
    else:
        protocol.look(0.0)
        protocol.look(1e6)
    assert reading.events == ["begun", "over"]
    await settle()
    assert reading.events == ["begun", "over"]


@pytest.mark.parametrize("in_the_end", [False, True])
@story
async def test_request_waits_for_its_run_without_a_task(in_the_end: bool) -> None:
    """Where it needs a task after the run, it gets one."""
    protocol, transport, reading = _connected(in_the_end=in_the_end)
    for number in range(2):
        reading.run = asyncio.get_running_loop().create_future()
        await _outside_tasks((protocol.data_received, head(len(BODY)) + BODY))
        assert (reading.events[-1], len(transport.written)) == ("no task", number)
        reading.run.set_result(None)
        await settle()
        assert reading.events[-2:] == ["ran", "over"]
        assert transport.written[number].endswith(b"\r\n\r\n%d" % len(BODY))


@pytest.mark.parametrize("end", ["lost", "gives way"])
@story
async def test_caller_that_leaves_while_its_run_waits_frees_its_place(end: str) -> None:
    """At once; when the run has begun and ends all the same, nothing follows."""
    protocol, transport, reading = _connected()
    transport.abort = transport.close  # type: ignore[method-assign]
    reading.run = asyncio.get_running_loop().create_future()
    await _outside_tasks((protocol.data_received, head(len(BODY)) + BODY))
    if end == "lost":
        protocol.connection_lost(ConnectionResetError())
    else:
        protocol.give_way()
    assert reading.events == ["begun", "no task", "over"]
    reading.run.set_result(None)
    await settle()
    assert (reading.events, transport.written) == (["begun", "no task", "over"], [])


@pytest.mark.parametrize("meanwhile", ["congested", "the last one"])
@story
async def test_answer_that_cannot_be_written_at_once_is_sent_by_a_task(meanwhile: str) -> None:
    """The run is over, and the connection is congested, or this answer is its last."""
    protocol, transport, reading = _connected()
    reading.run = asyncio.get_running_loop().create_future()
    await _outside_tasks((protocol.data_received, head(len(BODY)) + BODY))
    if meanwhile == "congested":
        protocol.pause_writing()
    else:
        protocol.shutdown()
    reading.run.set_result(None)
    await settle()
    assert reading.events[-2:] == ["ran in a task", "over"]
    if meanwhile == "congested":
        assert not transport.written
        protocol.resume_writing()
        await settle()
    answer = b"".join(transport.written)
    assert answer.endswith(b"\r\n\r\n%d" % len(BODY))
    assert (b"connection: close" in answer, transport.is_closed) == (
        (True, True) if meanwhile == "the last one" else (False, False)
    )
