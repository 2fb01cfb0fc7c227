"""Pipelines: frames through several networks, with one SLO over all of it."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Request
from starlette.responses import Response

from appliance.api.auth.keyring import Principal
from appliance.api.auth.named import callable_pipeline
from appliance.api.box import RunningBox
from appliance.api.http.documented import example, problems
from appliance.api.http.limits import HELD_BODY, HeldBody
from appliance.api.http.routes import StrictRoute
from appliance.api.streams.plain import session_in
from appliance.api.v1.deps import Caller, Cursor, EveryTenant, Limit, Member, Summary, TheBox
from appliance.api.v1.frames import CAPTURE_AGE_HEADER, SESSION_HEADER, answer_frame
from appliance.api.v1.media import BODIES, media_of
from appliance.api.v1.pages import page_of_all
from appliance.api.v1.pipeline_shapes import row_of, shape_of, status_of
from appliance.api.v1.pipeline_stages import stages_of
from appliance.api.v1.predict import LATER, Timeout, Wait
from appliance.domain.access import Role
from appliance.domain.errors import (
    AlreadyExists,
    BadInput,
    BadMedia,
    BadName,
    Busy,
    CreditExceeded,
    DeadlineExceeded,
    Forbidden,
    FrameDropped,
    FrameMismatch,
    ModelUnavailable,
    PipelineCycle,
    PipelineNotPossible,
    QueueFull,
    QuotaExceeded,
    RunFailed,
    ShuttingDown,
    SloTooSmall,
    StageMismatch,
    StorageFull,
    TooLarge,
    TooManyDeferred,
    TooManySessions,
    TooManyStages,
    UnknownApplication,
    UnknownClient,
    UnknownPipeline,
    UnknownSession,
    UnknownStage,
    UnknownVariant,
)
from appliance.domain.names import pipeline_id
from appliance.domain.pipeline import Pipeline
from appliance.domain.request import Request as EngineRequest
from appliance.runtime.pipelines import definition
from appliance.runtime.pipelines.frame import FrameCall
from appliance.runtime.pipelines.live import LivePipeline
from appliance.runtime.pipelines.pipelines import Pipelines
from appliance.tasks.base import Media
from appliance.wire.fields import INTEGER_MAX
from appliance.wire.pipelines import (
    ClientOrder,
    ClientShape,
    FrameShape,
    PipelineChange,
    PipelineOrder,
    PipelineRowShape,
    PipelineShape,
    PipelineStatusShape,
)
from appliance.wire.shape import Deleted, Page

router = APIRouter(prefix="/v1/pipelines", tags=["pipelines"], route_class=StrictRoute)
frames = APIRouter(prefix="/v1/pipelines", tags=["pipelines"])
"""Takes media, not JSON alone."""

PipelineName = Annotated[str, Path(description="Name of the pipeline.", examples=["signs"])]
ClientId = Annotated[str, Path(max_length=64, description="Its `id`.", examples=["5f0c2a9be1d04377"])]
XClient = Annotated[
    str | None,
    Header(
        max_length=64,
        description="The client of the pipeline that sends the frame. Left out: no client that has joined.",
    ),
]
XFrame = Annotated[
    int | None,
    Header(ge=0, le=INTEGER_MAX, description="Number of the frame; rises with the frames of a client."),
]
_REFUSED = (
    Forbidden,
    UnknownApplication,
    UnknownVariant,
    PipelineCycle,
    UnknownStage,
    StageMismatch,
    TooManyStages,
    SloTooSmall,
    BadName,
)
FRAME: dict[str, Any] = {
    "pipeline": "signs",
    "items": [
        {
            "stage": "find",
            "variant": "int8",
            "answer": {
                "regions": [{"score": 0.91, "quad": [[71.2, 40.8], [148.9, 41.0], [148.8, 66.1], [71.1, 65.9]]}],
                "width": 640,
                "height": 480,
            },
            "items": [
                {
                    "stage": "lines",
                    "quad": [[71.2, 40.8], [148.9, 41.0], [148.8, 66.1], [71.1, 65.9]],
                    "items": [
                        {"stage": "read", "variant": "fp32", "answer": {"text": "GATE 7", "score": 0.98}, "items": []}
                    ],
                }
            ],
        }
    ],
    "timings_ms": {"find": 24.1, "lines": 0.4, "read": 11.2},
    "cost": {"seconds": 0.0353, "joules": None, "price": None},
    "in_time": True,
    "request_id": "b2f1c0de-17",
}


@router.post(
    "",
    status_code=201,
    summary="Define a pipeline",
    responses=problems(*_REFUSED, AlreadyExists, QuotaExceeded, StorageFull),
)
async def create_pipeline(order: PipelineOrder, box: TheBox, principal: Member) -> PipelineShape:
    """Stages that a frame goes through: applications of the tenant, or shared ones, and `crop`, `pick` and `join`,
    which run beside them. Forks run side by side; a stage with several `after` waits for all of them.

    What cannot be run is refused with the `key` that is wrong, as `stages[1].after`; so is an SLO that the fastest
    variants cannot keep (`slo-too-small`). An application that a pipeline asks cannot be deleted.
    """
    pipeline = Pipeline(
        pipeline_id(principal.tenant, order.name),
        principal.tenant,
        order.name,
        order.latency_slo_ms,
        stages_of(order.stages, box.catalogue, principal),
        order.cost_by,
        order.weight,
    )
    definition.check(box.catalogue, pipeline)
    return shape_of(box, await box.store.pipelines.create(pipeline))


@router.get("", summary="List pipelines", response_model=Page[PipelineRowShape], responses=problems(Forbidden))
async def list_pipelines(
    box: TheBox,
    principal: Caller,
    every_tenant: EveryTenant,
    summary: Summary = False,
    cursor: Cursor = "",
    limit: Limit = 100,
) -> Response:
    """What this key can call, by name, with how many frames come, how many are in time, and what one costs. With
    `summary=true` the stages are left out."""

    def row(live: LivePipeline) -> PipelineRowShape | None:
        if live.pipeline.id not in box.pipelines.live:  # deleted while the page is made
            return None
        shown = row_of(box, live)
        return shown.model_copy(update={"stages": []}) if summary else shown

    if every_tenant:
        found, key = box.pipelines.all(), attrgetter("pipeline.id")
    else:
        of_tenant = box.pipelines.of_tenant(principal.tenant)
        found = [one for one in of_tenant if principal.may_call_pipeline(one.pipeline.name)]
        key = attrgetter("pipeline.name")
    return await page_of_all(box.turns, principal.tenant, found, cursor, limit, key, row)


@router.get("/{pipeline}", summary="Show a pipeline", responses=problems(UnknownPipeline))
async def show_pipeline(pipeline: PipelineName, box: TheBox, principal: Caller) -> PipelineStatusShape:
    """Definition of a pipeline, its plan with the reason, its clients, and ends and costs of its frames. Device keys
    see no clients, because a caller that knows the id of a client can act as the client.
    """
    shown = status_of(box, callable_pipeline(box.pipelines, principal, pipeline))
    return shown.model_copy(update={"clients": []}) if principal.role is Role.DEVICE else shown


@router.patch("/{pipeline}", summary="Change a pipeline", responses=problems(*_REFUSED, UnknownPipeline, StorageFull))
async def change_pipeline(
    pipeline: PipelineName, change: PipelineChange, box: TheBox, principal: Member
) -> PipelineShape:
    """Only the fields that are sent change; `stages` replaces all of them. A stage that names the application that
    it asked goes on to ask that one, though a nearer one has that name by now. Frames under way end as they began.
    Other stages, and another SLO, are refused as where a pipeline is defined.
    """
    id = callable_pipeline(box.pipelines, principal, pipeline).pipeline.id
    while True:  # until nobody else has changed it meanwhile: what is written is checked as a whole
        old = await box.store.pipelines.get(id)
        new = _changed(old, change, box, principal)
        if await box.store.pipelines.update(new, old) is not None:
            return shape_of(box, new)


def _changed(old: Pipeline, change: PipelineChange, box: RunningBox, principal: Principal) -> Pipeline:
    """Raises: what cannot be run is refused."""
    fields: dict[str, Any] = {
        name: getattr(change, name)
        for name in ("latency_slo_ms", "cost_by", "weight")
        if getattr(change, name) is not None
    }
    if change.stages is not None:
        fields["stages"] = stages_of(change.stages, box.catalogue, principal, old.stages)
    new = replace(old, **fields)
    if new.stages is not old.stages or new.latency_slo_ms != old.latency_slo_ms:
        definition.check(box.catalogue, new)
    return new


@router.delete("/{pipeline}", summary="Delete a pipeline", responses=problems(Forbidden, UnknownPipeline))
async def delete_pipeline(pipeline: PipelineName, box: TheBox, principal: Member) -> Deleted:
    """The name stops answering, its clients are gone; the applications stay."""
    await box.store.pipelines.delete(callable_pipeline(box.pipelines, principal, pipeline).pipeline.id)
    return Deleted(deleted=pipeline)


@router.post(
    "/{pipeline}/clients",
    status_code=201,
    summary="Join a pipeline",
    responses=problems(UnknownPipeline, PipelineNotPossible, TooManySessions),
)
async def join_pipeline(pipeline: PipelineName, order: ClientOrder, box: TheBox, principal: Caller) -> ClientShape:
    """Say how many frames a second will come; the box plans for them, or refuses with what is missing.

    Send `id` as `X-Client` with each frame. A client leaves by DELETE, or by 10 s without a frame, at less than 0.3
    frames a second by the time of three frames. Frames without a client are served, too: they count as measured.
    """
    live = callable_pipeline(box.pipelines, principal, pipeline)
    client = await box.pipelines.join(live.pipeline.id, order.fps, principal.tenant)
    return ClientShape(id=client.id, fps=client.fps)


@router.delete(
    "/{pipeline}/clients/{client}", summary="Leave a pipeline", responses=problems(UnknownPipeline, UnknownClient)
)
async def leave_pipeline(pipeline: PipelineName, client: ClientId, box: TheBox, principal: Caller) -> Deleted:
    """No more frames will come of this client."""
    box.pipelines.leave(callable_pipeline(box.pipelines, principal, pipeline).pipeline.id, client)
    return Deleted(deleted=client)


@frames.post(
    "/{pipeline}/predict",
    summary="Send a frame through a pipeline",
    response_model=FrameShape,
    responses={
        200: example(FRAME, "The frame's items as a tree: each stage's answer, or why there is none."),
        202: LATER,
        **problems(
            UnknownPipeline,
            UnknownClient,
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
            TooManyDeferred,
            Busy,
            ShuttingDown,
            DeadlineExceeded,
            RunFailed,
        ),
    },
    openapi_extra={
        "requestBody": {"required": True, "content": BODIES},
        "parameters": [SESSION_HEADER, CAPTURE_AGE_HEADER],
    },
)
async def predict_pipeline(
    pipeline: PipelineName,
    request: Request,
    box: TheBox,
    principal: Caller,
    timeout_ms: Timeout = None,
    wait: Wait = True,
    x_client: XClient = None,
    x_frame: XFrame = None,
) -> Response:
    """Send what `predict` of an application takes: the file itself as the body, or a form with one `file`.

    The frame is answered once, with what it has when its last item is done: an item that could not be in time is
    `dropped`, one whose stage failed has `error`, one whose `when` did not hold, or that was not among the best,
    `condition`. Boxes and quads are those of the original picture. The deadline is the pipeline's SLO, or `timeout_ms`
    from the arrival. A frame is one request of the tenant's quota.

    With `wait=false` the answer comes as soon as the frame is let in and its body read: 202 with an id, under which
    `GET /v1/requests/{id}` tells the rest.

    With `X-Session` it is a frame of a session that names the pipeline, as of `POST /v1/sessions/{session}/frames`.
    """
    arrival_ns = box.clock.now_ns()
    live = callable_pipeline(box.pipelines, principal, pipeline)
    if "x-session" in request.headers:
        if not wait or x_client is not None:
            raise BadInput(reason="X-Session: a frame is answered at once, and is of no other client")
        session = session_in(box, principal, dict(request.scope["headers"]), live.pipeline)
        return await answer_frame(box, session, request)
    if x_client is not None and not live.clients.takes(x_client):
        raise UnknownClient(name=x_client)
    call = FrameCall(
        principal.tenant,
        request.scope["request_id"],
        arrival_ns,
        timeout_ms,
        x_client or "",
        x_frame,
        is_admitted=True,
    )
    if not wait:
        box.deferred.check_room(principal.tenant)
    with ExitStack() as holds:
        holds.enter_context(box.pipelines.admitted(live.pipeline, principal.tenant))
        media = await media_of(request)
        if wait:
            answer = await box.pipelines.predict(live.pipeline, media, call)
            if x_client is not None:
                box.wall.client_frame(
                    principal.tenant, live.pipeline.name, x_client, x_frame, media.body, answer, live.clients.takes
                )
            return Response(answer, media_type="application/json")
        held: HeldBody | None = request.scope.get(HELD_BODY)
        if held is not None:
            holds.enter_context(held.hand_over())
        answering = partial(_answer, box.pipelines, live.pipeline, replace(media, accept=""), call)
        one = await box.deferred.begin(principal.tenant, pipeline, answering, holds, is_frame=True)
    headers = {"Location": f"/v1/requests/{one.id}"}
    return Response(one.document(), 202, headers, media_type="application/json")


async def _answer(
    pipelines: Pipelines, pipeline: Pipeline, media: Media, call: FrameCall, watch: Callable[[EngineRequest], None]
) -> bytes:
    """Of a frame that is answered later."""
    return await pipelines.predict(pipeline, media, replace(call, watch=watch))
