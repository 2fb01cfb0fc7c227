"""The live wall over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from appliance.api.auth.keyring import Principal
from appliance.api.box import RunningBox
from appliance.api.http.documented import problems
from appliance.api.http.routes import StrictRoute
from appliance.api.v1.deps import Member, TheBox
from appliance.api.wall import may_look
from appliance.domain.catalogue import DEFAULT_TENANT, WallViewers
from appliance.domain.errors import Forbidden, UnknownSession
from appliance.tasks.pictures import JPEG, PNG, kind_of
from appliance.wire.shape import Deleted
from appliance.wire.wall import WallShape, WallViewersOrder

router = APIRouter(prefix="/v1/wall", tags=["wall"], route_class=StrictRoute)

_FILE = {"schema": {"type": "string", "format": "binary"}}
StreamId = Annotated[str, Path(max_length=64, description="`stream` of the wall.", examples=["5f0c2a9be1d04377"])]

Number = Annotated[int | None, Query(ge=0, description="`number` of the frame on the wall; left out: the last frame.")]


@router.get("", summary="Look at the live wall", response_model=WallShape, responses=problems(Forbidden))
async def look(box: TheBox, principal: Member) -> Response:
    """The last frame of each stream (sessions, and clients of pipelines) with its answer. Ask every second.

    The box keeps frames only while somebody looks: the first look finds none, and four seconds after the last one they
    are gone. They lie in memory only. A tenant allows viewers with `PUT /v1/wall/viewers`; until then nobody may look.
    """
    viewers = box.catalogue.tenant(principal.tenant).wall
    may = may_look(viewers, principal)
    shown = WallShape(viewers=viewers, may_look=may, streams=[]).model_dump_json(exclude={"streams"})
    streams = b",".join(box.wall.look(principal.tenant)) if may else b""
    return Response(b'%b,"streams":[%b]}' % (shown[:-1].encode(), streams), media_type="application/json")


@router.delete("", summary="Leave the live wall", responses=problems(Forbidden))
async def leave(box: TheBox, principal: Member) -> Deleted:
    """All frames of the tenant are forgotten at once. Other viewers see the frames that come after their next look."""
    box.wall.leave(principal.tenant)
    return Deleted(deleted=principal.tenant)


@router.put("/viewers", summary="Say who may look at the live wall", responses=problems(Forbidden))
async def allow(order: WallViewersOrder, box: TheBox, principal: Member) -> WallViewersOrder:
    """The tenant decides: an admin key can end the viewing of another tenant's frames, and not allow it."""
    if order.viewers is not WallViewers.NOBODY and principal.is_admin and principal.tenant != DEFAULT_TENANT:
        raise Forbidden(action="allow viewers of another tenant's frames; a key of that tenant can")
    await box.store.tenants.allow_wall(principal.tenant, order.viewers)
    box.wall.leave(principal.tenant)
    return order


@router.get(
    "/{stream}/frame",
    summary="Fetch the picture of a stream's last frame",
    response_class=Response,
    responses={
        200: {"content": {kind: {**_FILE, "example": "(a picture)"} for kind in (JPEG, PNG)}},
        **problems(Forbidden, UnknownSession),
    },
)
async def show_frame(stream: StreamId, box: TheBox, principal: Member, number: Number = None) -> Response:
    """The picture as the device sent it, so that boxes of the answer fit. 404 while no viewer looks, for a frame
    without a picture, and for a `number` that the wall no longer shows.
    """
    _require_viewer(box, principal)
    picture = box.wall.picture(principal.tenant, stream, number)
    if not picture:
        raise UnknownSession(name=stream)
    return Response(picture, media_type=kind_of(picture), headers={"Cache-Control": "no-store"})


def _require_viewer(box: RunningBox, principal: Principal) -> None:
    """Check that the key may look. Raises: Forbidden."""
    if not may_look(box.catalogue.tenant(principal.tenant).wall, principal):
        raise Forbidden(action="look at the frames of this tenant, which has not allowed it")
