"""Uploads in pieces, for files of any size over lines that break."""

from typing import Annotated

from fastapi import APIRouter, Header, Path, Request, Response

from appliance.api.auth.keyring import Principal
from appliance.api.box import RunningBox
from appliance.api.http.documented import problems
from appliance.api.http.routes import StrictRoute
from appliance.api.v1.deps import Cursor, EveryTenant, Limit, Member, TheBox
from appliance.api.v1.pages import page
from appliance.domain.errors import (
    BadInput,
    Forbidden,
    IllegalState,
    OffsetMismatch,
    QuotaExceeded,
    StorageFull,
    TooLarge,
    UnknownUpload,
)
from appliance.domain.uploads import UploadRecord
from appliance.wire.jobs import UploadOrder, UploadShape
from appliance.wire.shape import Deleted, Page

router = APIRouter(prefix="/v1/uploads", tags=["uploads"], route_class=StrictRoute)

UploadId = Annotated[str, Path(description="Id of the upload.", examples=["5f1c0a9be2d4"])]
UploadOffset = Annotated[int, Header(ge=0, description="Where this piece starts; must be where the box stopped.")]


@router.post(
    "",
    status_code=201,
    summary="Begin an upload",
    responses=problems(Forbidden, TooLarge, QuotaExceeded, StorageFull, BadInput),
)
async def create_upload(order: UploadOrder, box: TheBox, principal: Member, response: Response) -> UploadShape:
    """For models above the form limit, and for archives with external data.

    1. `POST /v1/uploads` with the length if you know it. 2. `PATCH /v1/uploads/{id}` with the bytes and
       `Upload-Offset`, in one piece or
    many. 3. After a broken connection ask `HEAD /v1/uploads/{id}` for the offset and go on there, also after a restart
    of the box.
    4. `POST /v1/models` with `upload` = the id in place of `file`. An upload that nobody touches for a day is dropped.
    """
    upload = await box.uploads.create(principal.tenant, order.length, order.sha256, order.file_name)
    response.headers["Location"] = f"/v1/uploads/{upload.id}"
    return shape_of(upload)


@router.get("", summary="List uploads", response_model=Page[UploadShape], responses=problems(Forbidden))
async def list_uploads(
    box: TheBox, principal: Member, every_tenant: EveryTenant, cursor: Cursor = "", limit: Limit = 100
) -> Response:
    """The tenant's uploads that were not imported yet, or with `tenant=*` those of all tenants."""
    owner = principal.tenant
    tenant = None if every_tenant else owner
    uploads = await box.turns.alone(owner, lambda: box.uploads.uploads(tenant, cursor, limit + 1))
    return await page(box.turns, owner, uploads, limit, lambda upload: upload.id, shape_of)


@router.patch(
    "/{upload}",
    summary="Send a piece",
    responses=problems(Forbidden, UnknownUpload, OffsetMismatch, IllegalState, TooLarge, QuotaExceeded, StorageFull),
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "The bytes from `Upload-Offset` on, as they are. Content-Length is optional.",
            "content": {"application/offset+octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def append(
    upload: UploadId, upload_offset: UploadOffset, request: Request, box: TheBox, principal: Member, response: Response
) -> UploadShape:
    """Bytes are on disk when the answer comes; what arrived of a piece that broke off stays, so ask for the offset
    and go on there.
    """
    await _own(box, principal, upload)
    record = await box.uploads.append(upload, upload_offset, request.stream())
    response.headers.update(_headers(record))
    return shape_of(record)


@router.head(
    "/{upload}",
    summary="Ask where to go on",
    response_class=Response,
    responses=problems(Forbidden, UnknownUpload),
)
async def offset(upload: UploadId, box: TheBox, principal: Member) -> Response:
    """`Upload-Offset` and, when it was announced, `Upload-Length`."""
    return Response(headers=_headers(await _own(box, principal, upload)))


@router.get("/{upload}", summary="Show an upload", responses=problems(Forbidden, UnknownUpload))
async def show_upload(upload: UploadId, box: TheBox, principal: Member, response: Response) -> UploadShape:
    """How far it has come."""
    record = await _own(box, principal, upload)
    response.headers.update(_headers(record))
    return shape_of(record)


@router.delete("/{upload}", summary="Drop an upload", responses=problems(Forbidden, UnknownUpload, IllegalState))
async def delete_upload(upload: UploadId, box: TheBox, principal: Member) -> Deleted:
    """Frees its bytes at once."""
    await _own(box, principal, upload)
    await box.uploads.delete(upload)
    return Deleted(deleted=upload)


async def _own(box: RunningBox, principal: Principal, upload: str) -> UploadRecord:
    record = await box.uploads.upload(upload)
    if record.tenant != principal.tenant:
        raise UnknownUpload(name=upload)
    return record


def _headers(record: UploadRecord) -> dict[str, str]:
    length = {} if record.length is None else {"Upload-Length": str(record.length)}
    return {"Upload-Offset": str(record.offset), **length}


def shape_of(record: UploadRecord) -> UploadShape:
    """An upload as it stands."""
    return UploadShape(
        id=record.id,
        tenant=record.tenant,
        offset=record.offset,
        length=record.length,
        complete=record.is_complete,
        file_name=record.file_name,
        created_at=record.created_at,
        updated_at=record.updated_at,
    )
