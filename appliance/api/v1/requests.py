"""Requests that are answered later: what became of them."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from appliance.api.http.documented import problems
from appliance.api.v1.deps import Caller, TheBox
from appliance.domain.errors import UnknownRequest
from appliance.wire.requests import RequestShape

router = APIRouter(prefix="/v1/requests", tags=["predict"])

RequestId = Annotated[
    str, Path(max_length=64, description="As `predict` said it.", examples=["0f8fad5bd9cb469fa16570867728950e"])
]


@router.get("/{request}", summary="Fetch an answer", response_model=RequestShape, responses=problems(UnknownRequest))
async def show_request(request: RequestId, box: TheBox, principal: Caller) -> Response:
    """What became of a request that was sent to `predict` with `wait=false`.

    Once it has ended, `result` is what `predict` answers, or `problem` is. That is kept for a minute, then the id is
    unknown; so it is after a restart of the box, and to other tenants. Every key of the tenant may fetch it, a device
    key where it may call the application or the pipeline. Of a request that has taken longer than a second,
    `Retry-After` says when it is worth asking again.
    """
    one = box.deferred.find(principal.tenant, request)
    may_call = principal.may_call_pipeline if one.is_frame else principal.may_call
    if not may_call(one.name):
        raise UnknownRequest(name=request)
    after_s = one.poll_after_s(box.clock.now_ns())
    headers = {} if after_s is None else {"Retry-After": str(after_s)}
    return Response(one.document(), headers=headers, media_type="application/json")
