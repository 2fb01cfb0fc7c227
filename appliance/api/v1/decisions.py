"""What the box decided, and why: the stored decisions of the residency loop."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from appliance.api.auth.keyring import Principal
from appliance.api.http.documented import problems
from appliance.api.v1.deps import Limit, Member, TheBox
from appliance.api.v1.pages import page
from appliance.domain.decisions import DecisionRecord
from appliance.domain.errors import Forbidden, UnknownDecision
from appliance.domain.names import application_id
from appliance.wire.decisions import DecisionShape
from appliance.wire.shape import Page

SHARED = "-"
"""Stands for the owner of a model that is another tenant's: no tenant is called so."""

router = APIRouter(prefix="/v1/decisions", tags=["decisions"])

Before = Annotated[
    str,
    Query(max_length=18, pattern="^[0-9]*$", description="`next_cursor` of the page before; empty: from the start."),
]
Kind = Annotated[str | None, Query(max_length=40, description="Only decisions of this kind.", examples=["residency"])]
ApplicationName = Annotated[
    str | None,
    Query(
        max_length=200, description="Only decisions that an application asked for or was changed by.", examples=["door"]
    ),
]

DecisionId = Annotated[int, Path(ge=1, lt=10**18, description="Its `id` on the page.", examples=[4711])]


@router.get("", summary="What was decided, and why", responses=problems(Forbidden))
async def list_decisions(
    box: TheBox,
    principal: Member,
    cursor: Before = "",
    limit: Limit = 100,
    kind: Kind = None,
    application: ApplicationName = None,
) -> Page[DecisionShape]:
    """Newest first: who left memory for whom, with everything that the policy knew.

    An admin sees all; `application` is then a name in the tenant acted for, or an id (`tenant/name`). A tenant sees the decisions that concerned its own
    applications, without what they say of others. Feed the answer to `appliance plan -` to decide again.
    """
    if application is not None and "/" not in application:
        application = application_id(principal.tenant, application)
    records = await box.store.decisions.page(
        None if principal.is_admin else principal.tenant,
        kind=kind,
        application=application,
        before=int(cursor) if cursor else None,
        limit=limit + 1,
    )
    return page(records, limit, lambda record: str(record.id), lambda record: shape_of(record, principal))


@router.get("/{decision}", summary="Show a decision", responses=problems(Forbidden, UnknownDecision))
async def show_decision(decision: DecisionId, box: TheBox, principal: Member) -> DecisionShape:
    """One of them, as the page shows it. The oldest are forgotten: `decisions.rows_max` are kept."""
    tenant = None if principal.is_admin else principal.tenant
    found = await box.store.decisions.page(tenant, before=decision + 1, limit=1)
    if not found or found[0].id != decision:
        raise UnknownDecision(name=str(decision))
    return shape_of(found[0], principal)


def shape_of(record: DecisionRecord, principal: Principal) -> DecisionShape:
    """The decision as the caller may see it."""
    is_whole = principal.is_admin or not _foreign_tenants(record, principal.tenant)
    shape = DecisionShape(
        id=record.id,
        at=record.at,
        kind=record.kind,
        application=record.application,
        concerned=[application for application, _ in record.concerned],
        tenants=sorted({tenant for _, tenant in record.concerned}),
        is_whole=is_whole,
        problem=dict(record.problem),
        answer=dict(record.answer),
        reason=record.reason,
    )
    return shape if is_whole else shape.model_copy(update=_own_part(record, principal.tenant))


def _foreign_tenants(record: DecisionRecord, tenant: str) -> set[str]:
    """Other tenants with an application or a share in the problem."""
    names = [application["name"] for application in record.problem["applications"]]
    ids = [id for name in names for id in record.sharing.get(name, (name,))]
    owners = {id.partition("/")[0] for id in ids if "/" in id}
    return (owners | {share["name"] for share in record.problem.get("tenants", ())}) - {tenant}


def _own_names(record: DecisionRecord, tenant: str) -> dict[str, str]:
    """Name in the problem → the id of the tenant's own application that it stands for; others' are left out."""
    own: dict[str, str] = {}
    for application in record.problem["applications"]:
        name = application["name"]
        ids = [id for id in record.sharing.get(name, (name,)) if id.startswith(f"{tenant}/")]
        if ids:
            own[name] = ids[0]
    return own


def _own_part(record: DecisionRecord, tenant: str) -> dict[str, Any]:
    """What changes when other tenants and their applications are left out; what is shared bears the tenant's own name."""
    own = _own_names(record, tenant)
    asker = own.get(record.application or "")
    is_asker = record.application is None or asker is not None
    reason = _own_words(record, own, tenant)
    actions = [
        {**action, "application": own[action["application"]]}
        for action in record.answer["actions"]
        if action["application"] in own
    ]
    answer: dict[str, Any] = {"actions": actions, "reason": reason}
    if is_asker:
        answer |= {key: record.answer[key] for key in ("outcome", "serve")}
    return {
        "application": asker,
        "concerned": [application for application, owner in record.concerned if owner == tenant],
        "tenants": [tenant],
        "problem": _without(record.problem, own, tenant) if is_asker else None,
        "answer": answer,
        "reason": reason,
    }


def _own_words(record: DecisionRecord, own: Mapping[str, str], tenant: str) -> str:
    """The reason with the tenant's own names; nothing where it names somebody else."""
    reason = record.reason
    for name, id in own.items():
        reason = reason.replace(name, id)
    return "" if any(name in reason for name in _foreign_tenants(record, tenant)) else reason


def _without(problem: Mapping[str, Any], own: Mapping[str, str], tenant: str) -> dict[str, Any]:
    """The problem as if the others' applications were no part of the machine: what they hold is no memory of this problem."""
    held = sum(
        variant["size_mb"]
        for application in problem["applications"]
        for variant in application["variants"]
        if application["name"] not in own and variant["name"] == application["resident"]
    )
    kept = [
        {**application, "name": own[application["name"]], "tenant": _masked(application["tenant"], tenant)}
        for application in problem["applications"]
        if application["name"] in own
    ]
    asker = problem["request"] and own[problem["request"]]
    part = {**problem, "memory_mb": problem["memory_mb"] - held, "applications": kept, "request": asker}
    if "tenants" in problem:
        unlimited = {"guarantee_mb": 0.0, "ceiling_mb": None}
        shares = {share["name"]: share for share in problem["tenants"]}
        names = sorted({tenant, *(application["tenant"] for application in kept)})
        part["tenants"] = [{"name": name, **unlimited, **shares.get(name, {})} for name in names]
    return part


def _masked(owner: str, tenant: str) -> str:
    """The tenant of a model, without the name of another."""
    return owner if owner == tenant else SHARED
