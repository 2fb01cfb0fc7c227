"""Backups that lie on the box, and the restore of one."""

from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.responses import FileResponse, Response

from appliance.api.auth.keyring import Principal
from appliance.api.box import RunningBox
from appliance.api.http.documented import problems
from appliance.api.http.routes import StrictRoute
from appliance.api.v1.deps import Admin, Cursor, Limit, TheBox
from appliance.api.v1.pages import page
from appliance.domain.backups import BackupRecord, RestoreState
from appliance.domain.errors import (
    BadInput,
    BoxNotEmpty,
    Forbidden,
    IllegalState,
    InUse,
    StorageFull,
    UnknownBackup,
    UnknownUpload,
)
from appliance.wire.backups import BackupShape, RestoreOrder, RestoreShape
from appliance.wire.shape import Deleted, Page

router = APIRouter(tags=["backups"], route_class=StrictRoute)

BackupName = Annotated[
    str, Path(max_length=100, description="As the list shows it.", examples=["nightly-20260101T030500Z.tar"])
]
_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file.",
        "content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}, "example": "(a tar file)"}},
    }
}


@router.post("/v1/backups", status_code=202, summary="Make a backup", responses=problems(Forbidden, InUse, StorageFull))
async def make_backup(box: TheBox, _: Admin) -> BackupShape:
    """Database and contents in one file on the box; the list says how far it is. The box goes on serving.

    Keys are in it as their SHA-256; neither the admin key nor TLS keys are. Needs an admin key, as all of this does.
    """
    return BackupShape.model_validate(await box.backups.begin())


@router.get("/v1/backups", summary="List backups", response_model=Page[BackupShape], responses=problems(Forbidden))
async def list_backups(box: TheBox, principal: Admin, cursor: Cursor = "", limit: Limit = 100) -> Response:
    """Backups, newest first, with the backup that is being made. `backups.kept` nightly backups are kept."""
    found = await box.backups.all()
    names = [one.name for one in found]
    start = names.index(cursor) + 1 if cursor in names else 0
    part = found[start : start + limit + 1]
    return await page(box.turns, principal.tenant, part, limit, _name, BackupShape.model_validate)


@router.get(
    "/v1/backups/{backup}",
    summary="Download a backup",
    response_class=FileResponse,
    responses={**problems(Forbidden, UnknownBackup, IllegalState), **_FILE},
)
async def download_backup(backup: BackupName, box: TheBox, _: Admin) -> FileResponse:
    """The file itself. `appliance restore` makes a state folder of it, `POST /v1/restore` restores an empty box."""
    return FileResponse(await box.backups.path(backup), filename=backup, media_type="application/x-tar")


@router.delete(
    "/v1/backups/{backup}", summary="Delete a backup", responses=problems(Forbidden, UnknownBackup, IllegalState)
)
async def delete_backup(backup: BackupName, box: TheBox, _: Admin) -> Deleted:
    """Frees its bytes at once."""
    await box.backups.delete(backup)
    return Deleted(deleted=backup)


@router.post(
    "/v1/restore",
    status_code=202,
    summary="Restore a backup",
    responses=problems(
        Forbidden, BadInput, BoxNotEmpty, InUse, IllegalState, UnknownUpload, UnknownBackup, StorageFull
    ),
)
async def restore(order: RestoreOrder, box: TheBox, principal: Admin) -> RestoreShape:
    """This needs a box without models, applications and other tenants, with admin keys only. Every file of
    the backup is checked against its hash while the box serves; then the state is `ready`, and the next start of the
    box applies it, whole or not at all. The box keeps its own admin keys and certificate.
    """
    if (order.upload is None) == (order.backup is None):
        raise BadInput(reason="name either an upload or a backup")
    await box.restoring.require_empty()
    if order.backup is not None:
        return RestoreShape.model_validate(await box.restoring.begin(await box.backups.path(order.backup), _nothing))
    upload = order.upload or ""
    await _require_own(box, principal, upload)
    source = await box.uploads.finish(upload)

    async def drop() -> None:
        await box.uploads.delete(upload)

    return RestoreShape.model_validate(await box.restoring.begin(source, drop))


@router.get("/v1/restore", summary="How far is the restore?", responses=problems(Forbidden))
async def show_restore(box: TheBox, _: Admin) -> RestoreShape:
    """The restore that is checked, or waits for the next start."""
    return RestoreShape.model_validate(box.restoring.now)


@router.delete("/v1/restore", summary="Forget the restore", responses=problems(Forbidden, IllegalState))
async def withdraw_restore(box: TheBox, _: Admin) -> Deleted:
    """The next start brings the box back as it is now."""
    if box.restoring.now.state is RestoreState.NONE:
        raise IllegalState(name="restore", state="not under way")
    await box.restoring.withdraw()
    return Deleted(deleted="restore")


async def _require_own(box: RunningBox, principal: Principal, upload: str) -> None:
    if (await box.uploads.upload(upload)).tenant != principal.tenant:
        raise UnknownUpload(name=upload)


async def _nothing() -> None:
    """A backup on the box stays."""


def _name(backup: BackupRecord) -> str:
    return backup.name
