"""Media in, answers out."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from appliance.api.auth.named import callable_application
from appliance.api.http.documented import example, problems
from appliance.api.http.limits import HELD_BODY, HeldBody
from appliance.api.streams.plain import session_in
from appliance.api.v1.deps import Caller, TheBox
from appliance.api.v1.frames import FRAME_HEADERS, SESSION_HEADER, answer_frame
from appliance.api.v1.media import ANSWER, BODIES, answer_type, media_of
from appliance.clock import NS_PER_MS
from appliance.domain.errors import (
    BadInput,
    BadMedia,
    BadTensor,
    Busy,
    CeilingReached,
    CreditExceeded,
    DeadlineExceeded,
    FrameDropped,
    FrameMismatch,
    IllegalState,
    LoadFailed,
    ModelUnavailable,
    OutOfMemory,
    Overloaded,
    QueueFull,
    QuotaExceeded,
    RunFailed,
    RunRefused,
    ShuttingDown,
    TooLarge,
    TooManyDeferred,
    UnknownApplication,
    UnknownSession,
    UnknownVariant,
    VariantQuarantined,
)
from appliance.domain.request import DeferredState
from appliance.runtime.serving.predict import Call
from appliance.wire.predict import PredictShape
from appliance.wire.requests import RequestShape

router = APIRouter(prefix="/v1/applications", tags=["predict"])

_ID = "0f8fad5bd9cb469fa16570867728950e"
LATER = {
    "model": RequestShape,
    "headers": {"Location": {"description": "Where the answer will be.", "schema": {"type": "string"}}},
    **example({"id": _ID, "state": DeferredState.WAITING}, "With `wait=false`: where to fetch the answer."),
}

Variant = Annotated[str | None, Query(max_length=63, description="A variant by name; left out, the box chooses.")]
Timeout = Annotated[
    float | None, Query(gt=0, le=3_600_000, description="Deadline in ms from arrival; default: the application's SLO.")
]
Priority = Annotated[int, Query(ge=-100, le=100, description="Higher runs earlier among the requests that wait.")]
SequenceId = Annotated[
    str | None, Query(max_length=128, description="For stateful models: which stream this belongs to.")
]
Start = Annotated[bool, Query(description="This request begins the sequence (from a fresh state).")]
End = Annotated[bool, Query(description="This request ends it; its state is forgotten.")]
Wait = Annotated[bool, Query(description="false: the answer is an id, and `/v1/requests/{id}` has the task's.")]


@router.post(
    "/{application}/predict",
    summary="Ask a model about a picture, a sound, a text or tensors",
    response_model=PredictShape,
    responses={
        200: example(ANSWER, "The task's answer, the variant that gave it, and where the time went."),
        202: LATER,
        **problems(
            UnknownApplication,
            UnknownVariant,
            ModelUnavailable,
            IllegalState,
            BadMedia,
            BadTensor,
            TooLarge,
            QuotaExceeded,
            QueueFull,
            Overloaded,
            TooManyDeferred,
            Busy,
            OutOfMemory,
            CeilingReached,
            LoadFailed,
            VariantQuarantined,
            ShuttingDown,
            DeadlineExceeded,
            RunFailed,
            RunRefused,
            BadInput,
            UnknownSession,
            FrameMismatch,
            FrameDropped,
            CreditExceeded,
        ),
    },
    openapi_extra={
        "requestBody": {"required": True, "content": BODIES},
        "parameters": [SESSION_HEADER, *FRAME_HEADERS],
    },
)
async def predict_route(
    application: Annotated[str, Path(description="Name of the application.", examples=["door"])],
    request: Request,
    box: TheBox,
    principal: Caller,
    variant: Variant = None,
    timeout_ms: Timeout = None,
    priority: Priority = 0,
    sequence_id: SequenceId = None,
    sequence_start: Start = False,
    sequence_end: End = False,
    wait: Wait = True,
) -> Response:
    """Send the file itself as the body (JPEG, PNG, WebP, BMP, GIF, TIFF, WAV, text or JSON), or a form with one `file`.

    The first bytes decide what it is, not the content type. The deadline covers decoding, waiting and computing; a
    request that can no longer be in time is answered 504 without being run. Stateful models (voice activity) keep their
    state from request to request of one `sequence_id`: begin with `sequence_start=true`, send the pieces in order, end
    with `sequence_end=true`.

    With `wait=false` the answer comes as soon as the request is let in and its body read: 202 with an id, under which
    `GET /v1/requests/{id}` tells the rest. The request goes on whatever becomes of the connection; its deadline, its
    place in quotas and its order in a sequence are those of any other.

    With `Accept: image/png` or `image/jpeg` an answer of the task `tensor` that is one picture (depth, a mask) comes as
    that; any other one is JSON.

    With `X-Session` it is a frame of a session, as of `POST /v1/sessions/{session}/frames`: the session's plan decides
    the variant and the deadline, and the answer says what to send next.
    """
    arrival_ns = box.clock.now_ns()
    found = callable_application(box.catalogue, principal, application)
    if "x-session" in request.headers:
        if not wait or sequence_id is not None:
            raise BadInput(reason="X-Session: a frame is answered at once, and belongs to no sequence")
        return await answer_frame(box, session_in(box, principal, dict(request.scope["headers"]), found), request)
    call = Call(
        principal.tenant,
        request.scope["request_id"],
        arrival_ns,
        variant,
        timeout_ms,
        priority,
        sequence_id,
        sequence_start,
        sequence_end,
    )
    held: HeldBody | None = request.scope.get(HELD_BODY)
    deadline_ns = None if timeout_ms is None else arrival_ns + int(timeout_ms * NS_PER_MS)
    if not wait:
        box.deferred.check_room(principal.tenant)
    with ExitStack() as holds:
        holds.enter_context(box.engine.admitted(found, principal.tenant))
        with box.engine.announce(found, principal.tenant, deadline_ns):
            call = replace(call, began_cold=box.engine.wake_ahead(found, variant))
            media = await media_of(request)
            media = media if wait else replace(media, accept="")
        if not wait and held is not None:
            held = holds.enter_context(held.hand_over())
        if held is not None:
            call = replace(call, hold=held.add, hold_outputs=held.take_outputs)
        if wait:
            answer = await box.predictor.predict(found, media, call)
            return Response(answer, media_type=answer_type(answer))
        answering = partial(box.predictor.predict, found, media, call)
        one = await box.deferred.begin(principal.tenant, application, answering, holds)
    headers = {"Location": f"/v1/requests/{one.id}"}
    return Response(one.document(), 202, headers, media_type="application/json")
