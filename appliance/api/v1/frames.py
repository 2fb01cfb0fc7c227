"""Frames of sessions as plain requests: one picture each, with what to send next in the answer."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from appliance.api.box import RunningBox
from appliance.api.http.documented import example, plain_problems, problems
from appliance.api.http.limits import content_length
from appliance.api.http.problems import CONTENT_TYPE, plain_problem, problem_response
from appliance.api.streams.plain import answer_of, begun, coming, head_of, plan_header
from appliance.api.streams.sessions import session_of
from appliance.api.v1.deps import Caller, TheBox
from appliance.api.v1.media import ANSWER, PICTURES, answer_type, media_of
from appliance.domain.errors import (
    ApplianceError,
    BadInput,
    BadMedia,
    CreditExceeded,
    DeadlineExceeded,
    FrameDropped,
    FrameMismatch,
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
    UnknownSession,
)
from appliance.runtime.sessions.live import LiveSession
from appliance.wire.predict import PredictShape

router = APIRouter(prefix="/v1/sessions", tags=["sessions"])

_NO_WEBSOCKET = "this is a WebSocket: ask to upgrade"
SessionId = Annotated[str, Path(description="Id of the session.", max_length=64)]
SESSION_HEADER: dict[str, Any] = {
    "name": "X-Session",
    "in": "header",
    "schema": {"type": "string"},
    "description": "The session that this is a frame of.",
}
CAPTURE_AGE_HEADER: dict[str, Any] = {
    "name": "X-Capture-Age-Ms",
    "in": "header",
    "schema": {"type": "number"},
    "description": "How long ago the frame was captured; left out: now.",
}
FRAME_HEADERS: list[dict[str, Any]] = [
    {
        "name": "X-Frame",
        "in": "header",
        "schema": {"type": "integer", "minimum": 0},
        "description": "Number of the frame; rises with the frames of the session.",
    },
    CAPTURE_AGE_HEADER,
]
PLAN: dict[str, Any] = {
    "Session-Plan": {
        "description": "What to send next, a dictionary of RFC 9651.",
        "schema": {"type": "string"},
        "example": 'size=320, quality=75, next=132, wait_ms=66, variant="a-320"',
    }
}


@router.post(
    "/{session}/frames",
    summary="Send one frame of a session",
    response_model=PredictShape,
    responses={
        200: example(ANSWER, "As `predict` answers.") | {"headers": PLAN},
        **problems(
            UnknownSession,
            FrameMismatch,
            FrameDropped,
            CreditExceeded,
            BadInput,
            BadMedia,
            TooLarge,
            ModelUnavailable,
            QuotaExceeded,
            QueueFull,
            Overloaded,
            OutOfMemory,
            LoadFailed,
            ShuttingDown,
            DeadlineExceeded,
            RunFailed,
            RunRefused,
        ),
    },
    openapi_extra={"requestBody": {"required": True, "content": PICTURES}, "parameters": FRAME_HEADERS},
)
async def post_frame(
    session: SessionId,
    request: Request,
    box: TheBox,
    principal: Caller,
) -> Response:
    """For devices without a WebSocket: the picture is the body, the headers say which frame it is.

    The same frame sent again gets the same answer. The deadline is the session's, from the capture on; a frame that
    cannot be in time is answered 504 without being read. Of a session that names a pipeline the answer is that of the
    pipeline's `predict`.
    """
    return await answer_frame(box, session_of(box, principal, session), request)


@router.get(
    "/{session}/stream",
    summary="Open the stream of a session",
    status_code=101,
    responses={
        101: {"description": "The connection is a WebSocket from here on; docs/streams.md has its messages."},
        **plain_problems("upgrade-required", _NO_WEBSOCKET),
        **problems(UnknownSession),
    },
)
async def open_stream(session: SessionId, request: Request, box: TheBox, principal: Caller) -> Response:
    """A WebSocket without extensions: heads and pictures of frames one way, results and plans the other."""
    session_of(box, principal, session)
    status, body = plain_problem("upgrade-required", _NO_WEBSOCKET, request.url.path)
    return Response(body, status, {"Content-Type": CONTENT_TYPE, "Upgrade": "websocket", "Connection": "Upgrade"})


async def answer_frame(box: RunningBox, live: LiveSession, request: Request) -> Response:
    """Take a request as a frame of a session; whatever comes of it, the answer says what to send next."""
    try:
        text = await _answer(box, live, request)
    except ApplianceError as error:
        status, headers, body = problem_response(error, request.url.path)
        return Response(body, status, headers | plan_header(box, live))
    return Response(text, 200, plan_header(box, live), media_type=answer_type(text))


async def _answer(box: RunningBox, live: LiveSession, request: Request) -> bytes:
    """Raises: why there is no answer."""
    length = content_length(request.scope)
    head = head_of(dict(request.scope["headers"]), box.clock.now_ns(), length)
    with begun(box, live, head, length) as frame:
        with coming(frame):
            media = await media_of(request)
            frame.received(media.body)
        result = await frame.answer(media, request.scope["request_id"])
        box.wall.session_frame(live, result, media.body, result.body)
        return answer_of(result)
