"""Who changed what: the audit."""

from fastapi import APIRouter
from starlette.responses import Response

from appliance.api.auth.keyring import Principal
from appliance.api.http.documented import problems
from appliance.api.v1.deps import Before, Limit, Member, TheBox
from appliance.api.v1.pages import page
from appliance.domain.access import Role
from appliance.domain.audit import AuditRecord
from appliance.domain.errors import Forbidden
from appliance.wire.audit import ActorShape, AuditShape
from appliance.wire.shape import Page

router = APIRouter(prefix="/v1/audit", tags=["system"])


@router.get("", summary="Changes and their keys", response_model=Page[AuditShape], responses=problems(Forbidden))
async def list_audit(box: TheBox, principal: Member, cursor: Before = "", limit: Limit = 100) -> Response:
    """Changes under `/v1`, newest first, with their time and key, and sign-ins; refused sign-ins are counted by
    address. Requests to applications, frames and pieces of uploads are not in it.

    An admin sees all, a tenant what concerned it, without keys and addresses of admins. Of each tenant's changes and of
    admins' the newest `audit.rows_max` are kept, for `audit.kept_days`.
    """
    tenant = None if principal.is_admin else principal.tenant
    owner, before = principal.tenant, int(cursor) if cursor else None
    records = await box.turns.alone(owner, lambda: box.store.audit.page(tenant, before=before, limit=limit + 1))
    return await page(box.turns, owner, records, limit, lambda one: str(one.id), lambda one: shape_of(one, principal))


def shape_of(record: AuditRecord, principal: Principal) -> AuditShape:
    """The entry as the caller may see it."""
    actor = record.actor
    is_hidden = not principal.is_admin and (actor is None or actor.role is Role.ADMIN)
    shown = None
    if actor is not None:
        key_id, label = (None, "") if is_hidden else (actor.key_id, actor.label)
        shown = ActorShape(tenant=actor.tenant, role=actor.role, key_id=key_id, label=label)
    hidden = {"address": None} if is_hidden else {}
    return AuditShape.model_validate(record).model_copy(update={"actor": shown, **hidden})
