"""What happens, as it happens, over HTTP."""

import asyncio
import datetime
import itertools
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from appliance.api.auth.keyring import Principal
from appliance.api.http.sse import beating
from appliance.api.v1.events import told
from appliance.client.sse import ServerEvent, events
from appliance.clock import SystemClock
from appliance.domain.access import Role
from appliance.runtime.telemetry import Event
from tests.api.stand import Asking, Stand, good

pytestmark = pytest.mark.anyio


def asking(stand: Stand, who: str, query: str = "", **headers: str) -> Asking:
    headers["Authorization"] = f"Bearer {stand.keys[who]}"
    return Asking(stand.appliance.asgi, "GET", "/v1/events", headers, query=query)


async def seen(line: Asking, count: int) -> list[ServerEvent]:
    """The next events that are no heartbeats."""
    found: list[ServerEvent] = []
    while len(found) < count:
        found += events((await line.piece()).decode().split("\n"))
    return found


async def test_events_come_with_ids_and_facts(stand: Stand) -> None:
    """The stream opens at once, before anything happens; then an event as the box emits it."""
    async with asking(stand, "admin") as line:
        assert await line.status() == 200
        assert (await line.piece()).startswith(b":")
        stand.appliance.running().telemetry.emit("lamp lit", colour="green")
        event = (await seen(line, 1))[0]
    shown = json.loads(event.data)
    assert (event.event, shown["event"], shown["facts"]) == ("lamp lit", "lamp lit", {"colour": "green"})
    assert event.id == str(shown["id"])


async def test_events_of_other_tenants_and_the_box_are_hidden_from_a_tenant(stand: Stand) -> None:
    """Not even a gap of time tells of them."""
    telemetry = stand.appliance.running().telemetry
    async with asking(stand, "harbour") as line:
        await line.piece()
        telemetry.emit("one", tenant="museum")
        telemetry.emit("two")
        telemetry.emit("three", tenant="harbour", model_id="harbour/digits")
        assert [event.event for event in await seen(line, 1)] == ["three"]


async def test_events_are_filtered_by_kind(stand: Stand) -> None:
    """By name, or by the words with which names begin; also of what came before."""
    telemetry = stand.appliance.running().telemetry
    for event in ("lamp lit", "lamp out", "lamps lit", "door opened", "door closed"):
        telemetry.emit(event)
    chosen = "kinds=lamp&kinds=door%20opened"
    async with asking(stand, "admin", f"{chosen}&latest=2") as line:
        assert [event.event for event in await seen(line, 2)] == ["lamp out", "door opened"]
        telemetry.emit("door closed")
        telemetry.emit("lamp")
        assert [event.event for event in await seen(line, 1)] == ["lamp"]


async def test_event_stream_without_own_events_has_heartbeats() -> None:
    """Also where others' events come faster than heartbeats do."""
    clock = SystemClock()

    async def busy() -> AsyncGenerator[Event, None]:
        for number in itertools.count(1):
            yield Event(number, "2026-01-01T00:00:00+00:00", "lamp lit", "museum", {})
            await clock.sleep_until_ns(clock.now_ns() + 1_000_000)

    harbour = Principal("harbour", Role.TENANT, (), "key")
    async with asyncio.timeout(60), aclosing(beating(told(busy(), harbour), 0.05)) as line:
        assert [await anext(line) for _ in range(3)] == [None, None, None]


@pytest.mark.parametrize("way", ["header", "query"])
async def test_event_stream_resumes_after_the_last_id(stand: Stand, way: str) -> None:
    """A reader that was away for a moment goes on where it stopped."""
    telemetry = stand.appliance.running().telemetry
    telemetry.emit("one")
    last = telemetry.recent()[-1].id
    telemetry.emit("two")
    telemetry.emit("three")
    header = {"Last-Event-ID": str(last)} if way == "header" else {}
    async with asking(stand, "admin", f"after={last}" if way == "query" else "", **header) as line:
        assert [event.event for event in await seen(line, 2)] == ["two", "three"]


async def test_event_stream_ends_at_the_drain_of_the_box(stand: Stand) -> None:
    """An open stream does not hold a shutdown up."""
    async with asking(stand, "admin") as line:
        await line.piece()
        stand.appliance.begin_drain()
        async with asyncio.timeout(120):
            await line.task


async def test_event_stream_ends_when_its_key_expires(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the next event, or heartbeat."""
    box = stand.appliance.running()
    soon = box.clock.wall_now() + datetime.timedelta(hours=1)
    order = {"role": "tenant", "expires_at": soon.isoformat()}
    made = await good(stand.client().post("/v1/tenants/harbour/keys", json=order))
    headers = {"Authorization": f"Bearer {made['key']}"}
    async with Asking(stand.appliance.asgi, "GET", "/v1/events", headers) as line:
        assert (await line.piece()).startswith(b":")
        box.telemetry.emit("one", tenant="harbour")
        assert b"one" in await line.piece()
        monkeypatch.setattr(type(box.clock), "wall_now", lambda _: soon)
        box.telemetry.emit("two", tenant="harbour")
        await line.ended()
        assert line.pieces.empty()
