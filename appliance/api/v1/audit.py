"""Who changed what: the audit."""

from dataclasses import asdict

from fastapi import APIRouter

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


@router.get("", summary="Who changed what", responses=problems(Forbidden))
async def list_audit(box: TheBox, principal: Member, cursor: Before = "", limit: Limit = 100) -> Page[AuditShape]:
    """Newest first: what was changed under `/v1`, when, with which key, and who signed in; refused sign-ins are counted
    by address. Requests to applications, frames and pieces of uploads are none of it.

    An admin sees all, a tenant what concerned it, without keys and addresses of admins. Of each tenant's changes and of
    admins' the newest `audit.rows_max` are kept, for `audit.kept_days`.
    """
    tenant = None if principal.is_admin else principal.tenant
    records = await box.store.audit.page(tenant, before=int(cursor) if cursor else None, limit=limit + 1)
    return page(records, limit, lambda one: str(one.id), lambda one: shape_of(one, principal))


def shape_of(record: AuditRecord, principal: Principal) -> AuditShape:
    """The entry as the caller may see it."""
    actor = record.actor
    is_hidden = not principal.is_admin and (actor is None or actor.role is Role.ADMIN)
    shown = None if actor is None else ActorShape.model_validate(actor)
    if shown is not None and is_hidden:
        shown = shown.model_copy(update={"key_id": None, "label": ""})
    fields = asdict(record) | {"actor": shown, "address": None if is_hidden else record.address}
    return AuditShape.model_validate(fields)
