"""What happens, as it happens."""

import re
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.responses import StreamingResponse

from appliance.api.auth.keyring import Principal
from appliance.api.box import RunningBox
from appliance.api.http.documented import example, problems
from appliance.api.http.sse import HEARTBEAT, beating, event_stream, frame
from appliance.api.streams.welcome import Welcome
from appliance.api.v1.deps import Following, Member, TheBox
from appliance.domain.errors import Forbidden
from appliance.runtime.telemetry import Event
from appliance.wire.box import EventShape

_ID = re.compile("[0-9]{1,18}")
"""An id of an event; a reader that sends anything else has seen none of ours."""

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
) -> StreamingResponse:
    """Loads, evictions, imports and changes of the catalogue, with a heartbeat every 15 seconds.

    An admin sees everything, a tenant what is about itself. After a broken line send `Last-Event-ID` to get what was
    missed, as far back as the box remembers (2000 events).
    """
    if last_event_id is not None and _ID.fullmatch(last_event_id):
        after = int(last_event_id)
    if after is None and latest is not None:
        seen = [event.id for event in box.telemetry.recent() if is_visible(event, principal)][-latest:]
        after = seen[0] - 1 if seen else None
    return event_stream(_frames(box, principal, welcome, after))


async def _frames(box: RunningBox, principal: Principal, welcome: Welcome, after: int | None) -> AsyncIterator[bytes]:
    async for event in beating(box.telemetry.subscribe(after)):
        if not welcome.holds(have_frames_come=False):
            return  # the key was revoked or has expired, or the browser has signed out
        if event is None:
            yield HEARTBEAT
        elif is_visible(event, principal):
            yield frame(shape_of(event).model_dump(mode="json"), event=event.event, id=event.id)


def is_visible(event: Event, principal: Principal) -> bool:
    """Whether the caller may know of it."""
    return principal.is_admin or event.tenant == principal.tenant


def shape_of(event: Event) -> EventShape:
    """An event as it is sent."""
    return EventShape(id=event.id, at=event.at, event=event.event, tenant=event.tenant, facts=dict(event.facts))
