"""What happens, as it happens."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from pydantic import Field
from starlette.responses import StreamingResponse

from appliance.api.auth.keyring import Principal
from appliance.api.box import RunningBox
from appliance.api.http.documented import example, problems
from appliance.api.http.problems import told as told_of
from appliance.api.http.sse import HEARTBEAT, beating, event_stream, frame
from appliance.api.streams.welcome import Welcome
from appliance.api.v1.deps import Following, Member, TheBox
from appliance.domain.errors import Forbidden
from appliance.domain.events import severity_of
from appliance.runtime.telemetry import Event
from appliance.wire.box import EventShape
from appliance.wire.fields import Text

_ID = re.compile("[0-9]{1,18}")
"""An id of an event; a reader that sends anything else has seen none of ours."""

AT_ONCE = 100
"""Missed events that are sent as one piece of the answer."""

router = APIRouter(prefix="/v1/events", tags=["events"])

LastEventId = Annotated[
    str | None, Header(max_length=20, description="Id of the last event seen; sent by browsers on their own.")
]
After = Annotated[
    int | None,
    Query(ge=0, description="The same as a query: events after this id come first. Left out: only new ones."),
]
Latest = Annotated[
    int | None,
    Query(ge=1, le=2000, description="So many of the latest events come first, where none was seen before."),
]
Kind = Annotated[Text, Field(min_length=1, max_length=60)]
Kinds = Annotated[
    list[Kind] | None,
    Query(
        max_length=50,
        description="Only events whose name is this, or begins with this word. May be given several times.",
        examples=[["variant", "job progressed"]],
    ),
]


@router.get(
    "",
    summary="Follow events",
    response_class=StreamingResponse,
    responses={
        200: example(
            'id: 71\nevent: variant loaded\ndata: {"id": 71, "at": "2026-11-21T09:50:18+00:00", "event": "variant '
            'loaded", '
            '"tenant": null, "facts": {"build": "9f8a3c@cpu", "load_ms": 11.8}}\n\n',
            "Server-sent events. A slow reader loses the oldest; a gap in the ids shows it.",
            "text/event-stream",
        ),
        **problems(Forbidden),
    },
)
async def follow(
    box: TheBox,
    principal: Member,
    welcome: Following,
    last_event_id: LastEventId = None,
    after: After = None,
    latest: Latest = None,
    kinds: Kinds = None,
) -> StreamingResponse:
    """Loads, evictions, imports and changes of the catalogue, with a heartbeat every 15 seconds.

    An admin sees everything, a tenant what is about itself. After a broken line send `Last-Event-ID` to get what was
    missed, as far back as the box remembers (2000 events).
    """
    wanted = tuple(kinds or ())
    if last_event_id is not None and _ID.fullmatch(last_event_id):
        after = int(last_event_id)
    if after is None and latest is not None:
        seen = [event.id for event in box.telemetry.recent() if is_told(event, principal, wanted)][-latest:]
        after = seen[0] - 1 if seen else None
    return event_stream(_frames(box, principal, welcome, after, wanted))


async def _frames(
    box: RunningBox, principal: Principal, welcome: Welcome, after: int | None, kinds: Collection[str]
) -> AsyncIterator[bytes]:
    """Yield the events that the reader missed, many at once, then each event as it comes."""
    missed = [] if after is None else box.telemetry.recent(after)
    for start in range(0, len(missed), AT_ONCE):
        some = missed[start : start + AT_ONCE]
        frames = (frame_of(event) if is_told(event, principal, kinds) else b"" for event in some)
        piece = b"".join(await box.turns.collect(principal.tenant, frames))
        if piece and welcome.holds(have_frames_come=False):
            yield piece
    async for event in beating(told(box.telemetry.subscribe(missed[-1].id if missed else after), principal, kinds)):
        if not welcome.holds(have_frames_come=False):
            return  # the key was revoked or has expired, or the browser has signed out
        yield HEARTBEAT if event is None else frame_of(event)


async def told(
    events: AsyncGenerator[Event, None], principal: Principal, kinds: Collection[str] = ()
) -> AsyncGenerator[Event, None]:
    """Those of which the caller is told. They are chosen before heartbeats are put between them: who is told nothing of
    a busy box has to hear that the line is alive.
    """
    async with aclosing(events):
        async for event in events:
            if is_told(event, principal, kinds):
                yield event


def is_told(event: Event, principal: Principal, kinds: Collection[str] = ()) -> bool:
    """Whether the caller may know of it, and asked for its kind; no kinds: for all."""
    if not principal.is_admin and event.tenant != principal.tenant:
        return False
    return not kinds or any(event.event == kind or event.event.startswith(f"{kind} ") for kind in kinds)


def frame_of(event: Event) -> bytes:
    """Return an event as it is sent to those who follow."""
    return frame(shape_of(event).model_dump(mode="json"), event=event.event, id=event.id)


def shape_of(event: Event) -> EventShape:
    """An event as it is sent."""
    return EventShape(
        id=event.id,
        at=event.at,
        event=event.event,
        severity=severity_of(event.event, event.facts),
        tenant=event.tenant,
        facts=_facts(event),
    )


def _facts(event: Event) -> dict[str, Any]:
    """Reasons among them may be words of the system."""
    return {name: told_of(value) for name, value in event.facts.items()}
