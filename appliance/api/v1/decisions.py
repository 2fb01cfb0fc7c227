"""What the box decided, and why: the stored decisions on memory, on requests and on the budget."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from appliance.api.auth.keyring import Principal
from appliance.api.http.documented import problems
from appliance.api.v1.deps import Before, Limit, Member, TheBox
from appliance.api.v1.pages import page
from appliance.domain.decisions import DecisionRecord
from appliance.domain.errors import Forbidden, UnknownDecision
from appliance.domain.names import application_id
from appliance.wire.decisions import DecisionShape
from appliance.wire.shape import Page

ANOTHER = "another's application"
_OF_ONE_TENANT = ("dispatch", "adaptation", "offload", "pipeline", "neighbours")
"""Kinds of decisions that are about requests or sessions of one tenant; others are nameless in them."""
SHARED = "-"
"""Stands for the owner of a model that is another tenant's: no tenant is called so."""

router = APIRouter(prefix="/v1/decisions", tags=["decisions"])

Kind = Annotated[
    str | None,
    Query(
        max_length=40,
        description="Only decisions of this kind: residency, admission, drop, budget, selection, dispatch, "
        "adaptation, offload.",
        examples=["residency"],
    ),
]
ApplicationName = Annotated[
    str | None,
    Query(
        max_length=200, description="Only decisions that an application asked for or was changed by.", examples=["door"]
    ),
]

DecisionId = Annotated[int, Path(ge=1, lt=10**18, description="Its `id` on the page.", examples=[4711])]


@router.get("", summary="What was decided, and why", response_model=Page[DecisionShape], responses=problems(Forbidden))
async def list_decisions(
    box: TheBox,
    principal: Member,
    cursor: Before = "",
    limit: Limit = 100,
    kind: Kind = None,
    application: ApplicationName = None,
) -> Response:
    """Decisions, newest first: which variant left memory for which, with everything that the policy knew; refused and
    dropped requests; changes of the budget; what devices with a session send.

    An admin sees all; `application` is then a name in the tenant acted for, or an id (`tenant/name`). A tenant sees the
    decisions that concerned its own applications, without what they say of others. Feed the answer to `appliance plan
    -` to decide again.
    """
    if application is not None and "/" not in application:
        application = application_id(principal.tenant, application)
    read = partial(
        box.store.decisions.page,
        None if principal.is_admin else principal.tenant,
        kind=kind,
        application=application,
        before=int(cursor) if cursor else None,
        limit=limit + 1,
    )
    records = await box.turns.alone(principal.tenant, read)
    shape = partial(shape_of, principal=principal)
    return await page(box.turns, principal.tenant, records, limit, lambda record: str(record.id), shape)


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
    is_whole = principal.is_admin or not (_foreign_tenants(record, principal.tenant) or _is_foreign(record, principal))
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
    if is_whole:
        return shape
    if record.kind in _OF_ONE_TENANT:  # whose a shared application is stands nowhere else
        own = f"{principal.tenant}/"
        concerned = [id if id.startswith(own) else _nameless(id) for id in shape.concerned]
        asked = None if record.application is None else _nameless(record.application)
        return shape.model_copy(update={"application": asked, "concerned": concerned, "is_whole": True})
    masked = _own_rows if _is_plain(record) else _own_part
    return shape.model_copy(update=masked(record, principal.tenant))


def _is_plain(record: DecisionRecord) -> bool:
    """No policy was asked: the problem is what was known, not what `appliance plan` could answer."""
    return "plan" in record.problem


def _is_foreign(record: DecisionRecord, principal: Principal) -> bool:
    """The application that asked is another tenant's."""
    return record.application is not None and not record.application.startswith(f"{principal.tenant}/")


def _ids(record: DecisionRecord) -> set[str]:
    """Every application that the record names."""
    rows = [*record.problem.get("resident", ()), *record.answer["actions"]]
    names = {application["name"] for application in record.problem.get("applications", ())}
    names |= {row["application"] for row in rows if row["application"] is not None}
    names |= {id for id, _ in record.concerned}
    return names | {id for name in names for id in record.sharing.get(name, ())}


def _foreign_tenants(record: DecisionRecord, tenant: str) -> set[str]:
    """Other tenants with an application or a share in the problem."""
    owners = {id.partition("/")[0] for id in _ids(record) if "/" in id}
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
    """What changes when other tenants and their applications are left out; what is shared bears the tenant's own
    name.
    """
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


def _own_rows(record: DecisionRecord, tenant: str) -> dict[str, Any]:
    """What changes of a decision that no policy made: others' builds become one row, and who is another's bears no
    tenant.
    """
    is_asker = record.application is None or any(owner == tenant for _, owner in record.concerned)
    own = {id: id for id in _ids(record) if id.startswith(f"{tenant}/")}
    reason = _own_words(record, own, tenant)
    asker = None if record.application is None else own.get(record.application, _nameless(record.application))
    problem: dict[str, Any] | None = None
    if record.kind != "residency":
        problem = {**record.problem, "request": asker}
        problem |= {key: asker for key in ("application_id",) if key in problem}
    elif record.application in own:
        rows = record.problem["resident"]
        others = sum(row["mb"] for row in rows if row["application"] not in own)
        kept = [row for row in rows if row["application"] in own]
        problem = {**record.problem, "resident": kept, "others_mb": others}
    actions = [action for action in record.answer["actions"] if action["application"] in own]
    return {
        "application": asker if record.kind != "residency" or record.application in own else None,
        "concerned": [id if id in own else _nameless(id) for id, owner in record.concerned if owner == tenant],
        "tenants": [tenant],
        "problem": problem if is_asker else None,
        "answer": {**record.answer, "actions": actions, "reason": reason},
        "reason": reason,
    }


def _nameless(id: str) -> str:
    """Another tenant's application, as one sees it whom it is shared with."""
    return f"{SHARED}/{id.partition('/')[2]}"


def _own_words(record: DecisionRecord, own: Mapping[str, str], tenant: str) -> str:
    """The reason with the tenant's own names; others' applications stay unnamed in it.

    Nothing where it names another tenant all the same.
    """
    words = {id: ANOTHER for id in _ids(record) if not id.startswith(f"{tenant}/")} | dict(own)
    reason = record.reason
    if words:
        longest_first = "|".join(re.escape(name) for name in sorted(words, key=len, reverse=True))
        reason = re.sub(rf"(?<![\w./-])({longest_first})(?![\w/-])", lambda found: words[found[1]], reason)
    foreign = _foreign_tenants(record, tenant)
    return "" if any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", reason) for name in foreign) else reason


def _without(problem: Mapping[str, Any], own: Mapping[str, str], tenant: str) -> dict[str, Any]:
    """The problem as if the others' applications were no part of the machine: what they hold is no memory of this
    problem.
    """
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
