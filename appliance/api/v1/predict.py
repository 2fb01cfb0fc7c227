"""Media in, answers out."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import Response

from appliance.api.auth.named import callable_application
from appliance.api.http.documented import example, problems
from appliance.api.http.limits import HELD_BODY, HeldBody
from appliance.api.v1.deps import Caller, TheBox
from appliance.clock import NS_PER_MS
from appliance.domain.errors import (
    BadMedia,
    BadTensor,
    Busy,
    CeilingReached,
    DeadlineExceeded,
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
    UnknownVariant,
    VariantQuarantined,
)
from appliance.domain.request import DeferredState
from appliance.runtime.serving.predict import Call
from appliance.tasks.base import Media
from appliance.wire.predict import PredictShape
from appliance.wire.requests import RequestShape

router = APIRouter(prefix="/v1/applications", tags=["predict"])

_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_BODIES: dict[str, Any] = {
    "image/jpeg": _BINARY,
    "image/png": _BINARY,
    "image/webp": _BINARY,
    "audio/wav": _BINARY,
    "text/plain": {"schema": {"type": "string"}, "example": "a dog on the beach"},
    "application/json": {
        "schema": {"type": "object"},
        "examples": {
            "text": {"summary": "text-embedding", "value": {"texts": ["a dog on the beach", "two cats"]}},
            "tensor": {"summary": "tensor", "value": {"inputs": {"x": [[1.0, 2.0, 3.0]]}}},
        },
    },
    "multipart/form-data": {
        "schema": {"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}}
    },
}
_ANSWER = {
    "faces": [{"box": [71.2, 40.8, 148.9, 139.5], "score": 0.91}],
    "application": "door",
    "model": "centerface",
    "variant": "int8",
    "accuracy": 0.961,
    "accuracy_metric": "f1@0.5 against fp32",
    "warm": True,
    "timings_ms": {"decode": 3.1, "queue": 0.1, "load": 0, "wake": 0, "compute": 9.7, "encode": 0.6, "total": 13.9},
    "request_id": "b2f1c0de-17",
}

_ID = "0f8fad5bd9cb469fa16570867728950e"
_LATER = {
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
        200: example(_ANSWER, "The task's answer, the variant that gave it, and where the time went."),
        202: _LATER,
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
        ),
    },
    openapi_extra={"requestBody": {"required": True, "content": _BODIES}},
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
    """Send the file itself as the body (JPEG, PNG, WebP, WAV, text or JSON), or a form with one `file`.

    The first bytes decide what it is, not the content type. The deadline covers decoding, waiting and computing; a
    request that can no longer be in time is answered 504 without being run. Stateful models (voice activity) keep their
    state from request to request of one `sequence_id`: begin with `sequence_start=true`, send the pieces in order, end
    with `sequence_end=true`.

    With `wait=false` the answer comes as soon as the request is let in and its body read: 202 with an id, under which
    `GET /v1/requests/{id}` tells the rest. The request goes on whatever becomes of the connection; its deadline, its
    place in quotas and its order in a sequence are those of any other.
    """
    arrival_ns = box.clock.now_ns()
    found = callable_application(box.catalogue, principal, application)
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
    deadline_ns = None if timeout_ms is None else arrival_ns + int(timeout_ms * NS_PER_MS)
    if not wait:
        box.deferred.check_room(principal.tenant)
    with ExitStack() as holds:
        holds.enter_context(box.engine.admitted(found, principal.tenant))
        with box.engine.announce(found, principal.tenant, deadline_ns):
            call = replace(call, began_cold=box.engine.wake_ahead(found, variant))
            media = await _media(request)
        if wait:
            return Response(await box.predictor.predict(found, media, call), media_type="application/json")
        held: HeldBody | None = request.scope.get(HELD_BODY)
        if held is not None:
            holds.enter_context(held.hand_over())
        answering = partial(box.predictor.predict, found, media, call)
        one = await box.deferred.begin(principal.tenant, application, answering, holds)
    headers = {"Location": f"/v1/requests/{one.id}"}
    return Response(one.document(), 202, headers, media_type="application/json")


async def _media(request: Request) -> Media:
    """Raises: BadMedia when there is nothing."""
    content_type = request.headers.get("content-type", "")
    if content_type.startswith("multipart/form-data"):
        try:
            async with request.form(max_files=1, max_fields=8) as form:
                files = [value for value in form.values() if isinstance(value, UploadFile)]
                if not files:
                    raise BadMedia(reason="the form holds no file")
                return _filled(await files[0].read(), files[0].content_type or "")
        except HTTPException as error:  # what the framework makes of a broken form
            raise BadMedia(reason=f"the form is broken: {error.detail}") from error
    return _filled(await request.body(), content_type)


def _filled(body: bytes, content_type: str) -> Media:
    if not body:
        raise BadMedia(reason="the body is empty; send the picture, sound or text itself")
    return Media(body, content_type)
