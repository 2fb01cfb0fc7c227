"""Sessions of devices: promises of latency or accuracy, and plans of what to send."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from appliance.api.http.documented import problems
from appliance.api.http.routes import StrictRoute
from appliance.api.streams.sessions import own_key, session_of
from appliance.api.streams.shown import JOIN, join, promise_of, shape_of, summary_of
from appliance.api.streams.words import plan_fields
from appliance.api.v1.deps import Caller, Cursor, EveryTenant, Limit, Summary, TheBox
from appliance.api.v1.pages import page_of_all
from appliance.domain.errors import (
    Forbidden,
    IllegalState,
    ModelUnavailable,
    PromiseNotPossible,
    TooManySessions,
    UnknownApplication,
    UnknownPipeline,
    UnknownSession,
)
from appliance.wire.sessions import (
    SessionChange,
    SessionOrder,
    SessionPlanShape,
    SessionShape,
)
from appliance.wire.shape import Deleted, Page

router = APIRouter(prefix="/v1/sessions", tags=["sessions"], route_class=StrictRoute)

SessionId = Annotated[str, Path(max_length=64, description="Its `id`.", examples=["5f0c2a9be1d04377"])]


@router.post(
    "",
    status_code=201,
    summary=JOIN,
    responses=problems(UnknownApplication, UnknownPipeline, ModelUnavailable, PromiseNotPossible, TooManySessions),
)
async def join_session(order: SessionOrder, box: TheBox, principal: Caller) -> SessionShape:
    """A session is one device's stay. It is promised a latency (each frame is answered within `slo_ms` of its capture)
    or an accuracy (what the device shows loses at most `drop_max`), and told what to send, and when. Its frames go to
    an `application`, or through a `pipeline`, of which there is a promise of latency only.

    A promise that cannot be kept is refused with the `cause` that binds (link, processor, memory, share) and `offers`:
    promises that can be kept, each ready to be sent as `promise`. With `wait=true` the session waits for room instead.
    """
    return shape_of(box, await join(box, principal, order))


@router.get("", summary="List sessions", response_model=Page[SessionShape], responses=problems(Forbidden))
async def list_sessions(
    box: TheBox,
    principal: Caller,
    every_tenant: EveryTenant,
    summary: Summary = False,
    cursor: Cursor = "",
    limit: Limit = 100,
) -> Response:
    """Sessions of the tenant; a device's key sees the sessions that it began. A session that has ended is shown for a
    minute.

    With `summary=true` there are no plans.
    """
    found = box.sessions.list(None if every_tenant else principal.tenant, own_key(principal))
    shape = partial(summary_of if summary else shape_of, box)
    return await page_of_all(box.turns, principal.tenant, found, cursor, limit, lambda live: live.id, shape)


@router.get("/{session}", summary="Show a session", responses=problems(UnknownSession))
async def show_session(session: SessionId, box: TheBox, principal: Caller) -> SessionShape:
    """Its promise, its plan, what became of its frames, and in how many windows of time the promise was kept."""
    return shape_of(box, session_of(box, principal, session))


@router.get("/{session}/plan", summary="Show what to send", responses=problems(UnknownSession, IllegalState))
async def show_plan(session: SessionId, box: TheBox, principal: Caller) -> SessionPlanShape:
    """The present plan of a session that is served; for devices without a stream."""
    live = session_of(box, principal, session)
    live.check_alive()
    box.sessions.heard(live)
    if live.plan is None:
        raise IllegalState(name=session, state=live.state.value)
    return SessionPlanShape(**plan_fields(live.plan, live, box.clock.now_ns()))


@router.patch(
    "/{session}", summary="Change a promise, or pause", responses=problems(UnknownSession, PromiseNotPossible)
)
async def change_session(session: SessionId, change: SessionChange, box: TheBox, principal: Caller) -> SessionShape:
    """Another promise, or pause and go on. Where the new promise cannot be kept the old one stays (409)."""
    live = session_of(box, principal, session)
    promise = None if change.promise is None else promise_of(change.promise, live.session.fps)
    return shape_of(box, await box.sessions.change(live, promise=promise, is_paused=change.paused))


@router.delete("/{session}", summary="Leave", responses=problems(UnknownSession))
async def end_session(session: SessionId, box: TheBox, principal: Caller) -> Deleted:
    """The session ends; its counts are shown for a minute."""
    await box.sessions.end(session_of(box, principal, session))
    return Deleted(deleted=session)
