"""Applications: a tenant's registered uses of models."""

from dataclasses import fields, replace
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from appliance.api.auth.named import callable_application, own_application
from appliance.api.box import RunningBox
from appliance.api.http.documented import problems
from appliance.api.http.routes import StrictRoute
from appliance.api.v1.deps import Caller, Cursor, EveryTenant, Limit, Member, Summary, TheBox
from appliance.api.v1.pages import page_of_all
from appliance.api.v1.promises import refuse_broken, warnings_of
from appliance.api.v1.served import served_by, served_shape
from appliance.clock import NS_PER_MS
from appliance.domain.accuracy import ACCURACY, points, share
from appliance.domain.catalogue import Application
from appliance.domain.errors import (
    AlreadyExists,
    ApplicationInUse,
    BadName,
    Forbidden,
    LoadFailed,
    ModelUnavailable,
    OutOfMemory,
    SloNotKept,
    UnknownApplication,
    UnknownModel,
    UnknownVariant,
)
from appliance.domain.names import application_id
from appliance.runtime.residency.account import MemoryAccount
from appliance.wire.catalogue import ApplicationChange, ApplicationOrder, ApplicationShape, RunsShape
from appliance.wire.shape import Deleted, Page

router = APIRouter(prefix="/v1/applications", tags=["applications"], route_class=StrictRoute)

Strict = Annotated[
    bool, Query(description="Refuse (422 `slo-not-kept`) an SLO that no variant keeps, in place of a warning.")
]
ApplicationName = Annotated[str, Path(description="Name of the application.", examples=["door"])]
VariantName = Annotated[
    str | None,
    Query(max_length=200, description="Which one; left out: the most wanted.", examples=["int8"]),
]


@router.post(
    "",
    status_code=201,
    summary="Register an application",
    responses=problems(Forbidden, BadName, AlreadyExists, UnknownModel, SloNotKept),
)
async def create_application(
    order: ApplicationOrder, box: TheBox, principal: Member, strict: Strict = False
) -> ApplicationShape:
    """An application is a use of a model with promises of its own: a latency SLO, a least
    accuracy (without labels: agreement with the original), a weight.

    Uploading a model makes one of the same name already; make more where several uses of one model need different
    promises. In the Open Inference Protocol the *model name* is the application and the *version* is the variant.

    An SLO that no variant keeps is answered with `warnings`; with `strict=true` it is refused and nothing is made.
    """
    model = box.catalogue.resolve_model(principal.tenant, order.model)
    promises = order.model_dump(exclude={"model"}) | {"accuracy_min": points(order.accuracy_min)}
    id = application_id(principal.tenant, order.name)
    application = Application(id=id, tenant=principal.tenant, model_id=model.id, **promises)
    if strict:
        refuse_broken(box.catalogue.draft(application))
    return shape_of(box, await box.store.applications.create(application))


@router.get("", summary="List applications", response_model=Page[ApplicationShape], responses=problems(Forbidden))
async def list_applications(
    box: TheBox,
    principal: Caller,
    every_tenant: EveryTenant,
    summary: Summary = False,
    cursor: Cursor = "",
    limit: Limit = 100,
) -> Response:
    """What this key can call, by name: the tenant's own applications and the shared ones that they do not hide.

    With `summary=true` there are neither warnings nor the reason of the choice, and of the variants the first alone.
    """
    shape_one = _summary_of if summary else shape_of

    def row(application: Application) -> ApplicationShape | None:
        is_gone = box.catalogue.application(application.id) is None  # deleted while the page is made
        return None if is_gone else shape_one(box, application)

    if every_tenant:
        found, key = box.catalogue.applications(), attrgetter("id")
    else:
        found = [a for a in box.catalogue.visible(principal.tenant) if principal.may_call(a.name)]
        key = attrgetter("name")
        found.sort(key=key)
    return await page_of_all(box.turns, principal.tenant, found, cursor, limit, key, row)


@router.get("/{application}", summary="Show an application", responses=problems(UnknownApplication))
async def show_application(application: ApplicationName, box: TheBox, principal: Caller) -> ApplicationShape:
    """Its model, promises, and the variants that would serve it now, the first choice first."""
    return shape_of(box, callable_application(box.catalogue, principal, application))


@router.get("/{application}/runs", summary="Show recent run times", responses=problems(UnknownApplication))
async def show_runs(application: ApplicationName, box: TheBox, principal: Caller) -> RunsShape:
    """What its runs took while serving, by variant, neighbours and all: `appliance scenario` lets the lab draw from
    them.
    """
    figures = box.telemetry.of_application(callable_application(box.catalogue, principal, application).id)
    return RunsShape(variants={name: [ns / NS_PER_MS for ns in f.runs_ns] for name, f in figures.items() if f.runs_ns})


@router.patch(
    "/{application}",
    summary="Change an application",
    responses=problems(Forbidden, UnknownApplication, UnknownModel, SloNotKept, ApplicationInUse),
)
async def change_application(
    application: ApplicationName, change: ApplicationChange, box: TheBox, principal: Member, strict: Strict = False
) -> ApplicationShape:
    """Only the fields that are sent change; they hold from the next request on.

    Another `model` swaps the network behind the name. Where a pipeline asks the application, the other model is of the
    same task, and it stays shared while pipelines of other tenants ask it (409 `application-in-use`).

    Where no variant keeps the SLO then, the answer has `warnings`; with `strict=true` it is refused and nothing
    changes.
    """
    old = own_application(box.catalogue, principal, application)
    wanted = {k: v for k, v in change.model_dump(exclude_unset=True).items() if v is not None or k == "latency_slo_ms"}
    if "accuracy_min" in wanted:
        wanted["accuracy_min"] = points(wanted["accuracy_min"])
    if model := wanted.pop("model", None):
        wanted["model_id"] = box.catalogue.resolve_model(principal.tenant, model).id
    new = replace(old, **wanted)
    if strict:
        refuse_broken(box.catalogue.draft(new))
    changed = await box.store.applications.update(new)
    if new.latency_slo_ms != old.latency_slo_ms:
        box.telemetry.forget_slo(new.id)
    return shape_of(box, changed)


@router.post(
    "/{application}/load",
    summary="Bring a variant into memory",
    responses=problems(Forbidden, UnknownApplication, UnknownVariant, ModelUnavailable, OutOfMemory, LoadFailed),
)
async def load_application(
    application: ApplicationName, box: TheBox, principal: Member, variant: VariantName = None
) -> ApplicationShape:
    """The application is in service again, where it was unloaded, and a variant of it in memory. It stays no longer
    than others do: as requests are expected for it.
    """
    own = own_application(box.catalogue, principal, application)
    await box.availability.load(own, variant)
    return shape_of(box, own)


@router.post(
    "/{application}/unload",
    summary="Take an application out of service",
    responses=problems(Forbidden, UnknownApplication, ModelUnavailable),
)
async def unload_application(application: ApplicationName, box: TheBox, principal: Member) -> ApplicationShape:
    """Requests under way are answered, new requests get 409 `model-unavailable`. Then variants that no other
    application uses leave memory. `load` undoes it, and so does a restart of the box.
    """
    own = own_application(box.catalogue, principal, application)
    await box.availability.unload(own)
    return shape_of(box, own)


@router.delete(
    "/{application}",
    summary="Delete an application",
    responses=problems(Forbidden, UnknownApplication, ApplicationInUse),
)
async def delete_application(application: ApplicationName, box: TheBox, principal: Member) -> Deleted:
    """The name stops answering; the model stays. While a pipeline asks it, it is refused: of the tenant's own
    pipelines with their names, of others' with their number.
    """
    await box.store.applications.delete(own_application(box.catalogue, principal, application).id)
    return Deleted(deleted=application)


_AS_STORED = {one.name for one in fields(Application)} & ApplicationShape.model_fields.keys() - {"accuracy_min"}
"""Fields that are shown as they are."""


def shape_of(box: RunningBox, application: Application) -> ApplicationShape:
    """An application as it stands."""
    try:
        entry = box.catalogue.entry(application.id)
    except ModelUnavailable:  # its model is on its way out
        model, task, variants, warnings = application.model_id.split("/", 1)[1], None, [], []
        choice, meaning = "", ACCURACY
    else:
        model, task, variants = entry.model.name, entry.model.task.kind, [s.variant.name for s in entry.order]
        warnings, choice = warnings_of(entry, MemoryAccount(box.memory, box.shares)), entry.reason
        meaning = entry.model.meaning
    figures = [(variant, one) for variant, _caller, one in box.telemetry.of_callers(application.id)]
    asked, kept = sum(f.slo_requests for _, f in figures), sum(f.slo_kept for _, f in figures)
    same = {name: getattr(application, name) for name in _AS_STORED}
    return ApplicationShape(
        **same,
        model=model,
        task=task,
        accuracy_min=share(application.accuracy_min),
        accuracy_meaning=meaning,
        available=box.availability.is_open(application),
        variants=variants,
        choice=choice,
        warnings=warnings,
        slo_requests=asked,
        slo_kept=kept / asked if asked else None,
        served=served_shape(served_by(box, application.id, figures)),
    )


def _summary_of(box: RunningBox, application: Application) -> ApplicationShape:
    """The same in a long list."""
    shape = shape_of(box, application)
    return shape.model_copy(update={"variants": shape.variants[:1], "choice": "", "warnings": []})
