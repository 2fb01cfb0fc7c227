"""Models and their variants: upload, look, delete."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path as File
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from appliance.api.auth.keyring import Principal
from appliance.api.auth.named import own_model
from appliance.api.box import RunningBox
from appliance.api.http.documented import problems
from appliance.api.http.forms import Form, received_form
from appliance.api.v1 import jobs
from appliance.api.v1.deps import Cursor, EveryTenant, Limit, Member, Summary, TheBox
from appliance.api.v1.orders import PARTS, Source, check_fields, import_request, pack
from appliance.api.v1.pages import page_of_all
from appliance.api.v1.shapes import model_shape, model_summary, variant_shape, variant_shapes
from appliance.domain.errors import (
    AlreadyExists,
    BadInput,
    BadMetadata,
    BadName,
    Forbidden,
    IllegalState,
    InUse,
    NotConfined,
    ProcessorEmulated,
    QuotaExceeded,
    StorageFull,
    TooLarge,
    UnknownModel,
    UnknownUpload,
    UnknownVariant,
)
from appliance.domain.jobs import ImportRequest, JobRecord
from appliance.domain.names import checked_variant_name, variant_id
from appliance.domain.states import VariantState
from appliance.modelstore.store.disk import require_free
from appliance.wire.catalogue import ModelShape, ModelSummary, VariantShape
from appliance.wire.jobs import JobShape
from appliance.wire.shape import Deleted, Page

router = APIRouter(prefix="/v1/models", tags=["models"])

ModelName = Annotated[str, Path(description="Name of the model.", examples=["centerface"])]
VariantName = Annotated[str, Path(description="Name of the variant.", examples=["int8"])]

_FILE = {"type": "string", "format": "binary"}
_FORM: dict[str, Any] = {
    "file": {
        **_FILE,
        "description": "An ONNX file, or a zip or tar with one (external data, labels.txt, tokenizer.json, "
        "metadata.json, calibration/ and evaluation/ beside it). Either this or `upload`.",
    },
    "upload": {"type": "string", "description": "Id of a finished upload, in place of `file`."},
    "name": {"type": "string", "description": "Name of the model, and of the application made with it."},
    "task": {
        "type": "string",
        "description": "What it does: `image-classification`, `object-detection`, `face-detection`, "
        "`text-detection`, `text-recognition`, `image-embedding`, `text-embedding`, `voice-activity` or `tensor`.",
    },
    "metadata": {
        "type": "string",
        "description": "JSON: labels, image (mean, std, layout ...), decoder, params, state, constants, "
        "precisions, application, shared. What is left out is inferred from the graph.",
    },
    "labels": {**_FILE, "description": "Class names, one a line."},
    "tokenizer": {**_FILE, "description": "tokenizer.json of a text model."},
    "calibration": {**_FILE, "description": "zip or tar of inputs like those of real use, for int8."},
    "evaluation": {
        **_FILE,
        "description": "zip or tar of labelled inputs with truth.json; accuracy is measured on it.",
    },
    "application": {
        "type": "string",
        "description": "Name of the application, where it is not the model's; empty: none.",
    },
    "shared": {"type": "boolean", "description": "Readable by every tenant."},
}
_REFUSALS = problems(
    Forbidden,
    AlreadyExists,
    BadInput,
    BadName,
    BadMetadata,
    UnknownUpload,
    IllegalState,
    TooLarge,
    QuotaExceeded,
    NotConfined,
    ProcessorEmulated,
    StorageFull,
)


def _form_body(required: list[str], names: list[str], example: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "required": required, "properties": {name: _FORM[name] for name in names}}
    return {
        "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema, "example": example}}}
    }


@router.post(
    "",
    status_code=202,
    summary="Upload a model",
    responses=_REFUSALS,
    openapi_extra=_form_body(
        ["name", "task"],
        list(_FORM),
        {
            "name": "centerface",
            "task": "face-detection",
            "file": "@centerface.onnx",
            "metadata": '{"image": {"std": [1]}}',
        },
    ),
)
async def create_model(request: Request, box: TheBox, principal: Member, response: Response) -> JobShape:
    """Takes the file and answers with an import job; follow it at the `Location`.

    The import checks the network in a process of its own, makes variants (fp32, fp16, int8, smaller inputs), measures
    the accuracy (without labels: agreement with the original) and cost of each, and lets the model serve as soon as the
    first one is ready. Files above the form limit go by `/v1/uploads`.
    """
    async with _received(request, box, principal) as (form, source):
        order = await asyncio.to_thread(import_request, principal.tenant, form, source)
        job = await _submit(box, order, form.fields.get("upload"))
    return _accepted(response, box, job)


@router.get("", summary="List models", response_model=Page[ModelSummary], responses=problems(Forbidden))
async def list_models(
    box: TheBox,
    principal: Member,
    every_tenant: EveryTenant,
    summary: Summary = False,
    cursor: Cursor = "",
    limit: Limit = 100,
) -> Response:
    """The tenant's own models and the shared ones that they do not hide, by name.

    With `summary=true` the names of the variants are left out; `variants_count` says how many there are.
    """
    shape = partial(model_summary, with_variants=not summary)
    if every_tenant:
        found, key = box.catalogue.models(), attrgetter("id")
    else:
        found, key = box.catalogue.visible_models(principal.tenant), attrgetter("name")
    return await page_of_all(box.turns, principal.tenant, found, cursor, limit, key, shape)


@router.get("/{model}", summary="Show a model", responses=problems(Forbidden, UnknownModel))
async def show_model(model: ModelName, box: TheBox, principal: Member) -> ModelShape:
    """Task and variants of a model with size, accuracy (without labels: agreement), measured cost and where they are in
    memory."""
    return model_shape(
        box.catalogue.resolve_model(principal.tenant, model), box.memory.snapshot(), box.catalogue, box.importer
    )


@router.delete("/{model}", summary="Delete a model", responses=problems(Forbidden, UnknownModel, InUse))
async def delete_model(model: ModelName, box: TheBox, principal: Member) -> Deleted:
    """Takes no new requests at once, waits for the running ones, then removes the model, its variants and its
    applications.

    A model that another tenant's application uses stays (409).
    """
    await box.deletion.delete(own_model(box.catalogue, principal, model).id)
    return Deleted(deleted=model)


@router.get(
    "/{model}/variants",
    summary="List a model's variants",
    response_model=Page[VariantShape],
    responses=problems(Forbidden, UnknownModel),
)
async def list_variants(
    model: ModelName, box: TheBox, principal: Member, cursor: Cursor = "", limit: Limit = 100
) -> Response:
    """By name, with what was measured of each."""
    found = box.catalogue.resolve_model(principal.tenant, model)
    shapes = variant_shapes(found, box.memory.snapshot(), box.catalogue, box.importer)
    variants = sorted(await box.turns.collect(principal.tenant, shapes), key=attrgetter("name"))
    return await page_of_all(box.turns, principal.tenant, variants, cursor, limit, attrgetter("name"), lambda v: v)


@router.post(
    "/{model}/variants",
    status_code=202,
    summary="Upload a variant of your own",
    responses={**_REFUSALS, **problems(Forbidden, UnknownModel)},
    openapi_extra=_form_body(["name"], ["file", "upload", "name"], {"name": "pruned", "file": "@pruned.onnx"}),
)
async def create_variant(
    model: ModelName, request: Request, box: TheBox, principal: Member, response: Response
) -> JobShape:
    """Adds a variant to those that the box made. Inputs and outputs must be those of the model. The box measures it
    like the others.
    """
    found = own_model(box.catalogue, principal, model)
    async with _received(request, box, principal) as (form, source):
        order = ImportRequest(
            tenant=principal.tenant,
            name=found.name,
            source=str(source.path),
            file_name=source.file_name,
            task=found.task,
            variant=checked_variant_name(form.fields.get("name", "")),
        )
        job = await _submit(box, order, form.fields.get("upload"))
    return _accepted(response, box, job)


@router.get(
    "/{model}/variants/{variant}", summary="Show a variant", responses=problems(Forbidden, UnknownModel, UnknownVariant)
)
async def show_variant(model: ModelName, variant: VariantName, box: TheBox, principal: Member) -> VariantShape:
    """One concrete build: precision × input size, with what was measured of it."""
    found = box.catalogue.resolve_model(principal.tenant, model)
    for one in found.variants:
        if one.name == variant:
            return variant_shape(found, one, box.memory.snapshot(), box.catalogue, box.importer)
    raise UnknownVariant(name=variant)


@router.delete(
    "/{model}/variants/{variant}",
    summary="Delete a variant",
    responses=problems(Forbidden, UnknownModel, UnknownVariant),
)
async def delete_variant(model: ModelName, variant: VariantName, box: TheBox, principal: Member) -> Deleted:
    """The model goes on with its other variants."""
    found = own_model(box.catalogue, principal, model)
    if variant not in [one.name for one in found.variants]:
        raise UnknownVariant(name=variant)
    await box.store.models.delete_variant(variant_id(found.id, variant))
    return Deleted(deleted=variant)


@router.post(
    "/{model}/variants/{variant}/release",
    summary="Release a quarantined variant",
    responses=problems(Forbidden, UnknownModel, UnknownVariant, IllegalState),
)
async def release_variant(model: ModelName, variant: VariantName, box: TheBox, principal: Member) -> VariantShape:
    """A variant whose process crashed three times within ten minutes is quarantined: it is not run any more, while the
    model's others serve on. This lets it serve again; `reason` of the variant says what happened. It may also
    serve again on kinds of processors that it `avoids`.
    """
    found = own_model(box.catalogue, principal, model)
    for one in found.variants:
        if one.name == variant and box.catalogue.servables.avoided_of(one, found):
            box.catalogue.allow(one, found)
            if one.state is not VariantState.QUARANTINED:
                return variant_shape(found, one, box.memory.snapshot(), box.catalogue, box.importer)
        if one.name == variant and one.state is not VariantState.QUARANTINED:
            raise IllegalState(name=variant, state=f"{one.state.value}, and only what is quarantined is released")
        if one.name == variant:
            released = await box.store.models.set_variant_state(one.id, VariantState.READY)
            return variant_shape(found, released, box.memory.snapshot(), box.catalogue, box.importer)
    raise UnknownVariant(name=variant)


# -- pieces ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _received(request: Request, box: RunningBox, principal: Principal) -> AsyncIterator[tuple[Form, Source]]:
    """The form, and the one file that is to be imported; what is left of its files is removed at the end."""
    scratch = box.state_dir / "scratch"
    async with received_form(request, scratch, box.form_bytes_max, box.store.blobs.reserve_bytes) as form:
        check_fields(form)
        source = await _source(form, box, principal)
        if not PARTS.keys() & form.files.keys():
            yield form, source
            return
        packed = scratch / f"form-{secrets.token_hex(12)}"
        size_bytes = source.path.stat().st_size + sum(file.size_bytes for file in form.files.values())
        require_free(scratch, size_bytes, box.store.blobs.reserve_bytes)
        try:
            await asyncio.to_thread(pack, source.path, form, packed)
            yield form, replace(source, path=packed)
        finally:
            packed.unlink(missing_ok=True)


async def _source(form: Form, box: RunningBox, principal: Principal) -> Source:
    """Raises: BadMetadata, UnknownUpload, IllegalState, BadInput (other digest)."""
    file, upload = form.files.get("file"), form.fields.get("upload")
    if (file is None) == (not upload):
        raise BadMetadata(reason="send either 'file' (the model itself) or 'upload' (the id of a finished upload)")
    if file is not None:
        return Source(file.path, file.file_name)
    assert upload
    record = await box.uploads.upload(upload)
    if record.tenant != principal.tenant:
        raise UnknownUpload(name=upload)
    path: File = await box.uploads.finish(upload)
    return Source(path, record.file_name)


async def _submit(box: RunningBox, order: ImportRequest, upload: str | None) -> JobRecord:
    job = await box.importer.submit(order)
    if upload:
        await box.uploads.delete(upload)  # the importer has taken its file
    return job


def _accepted(response: Response, box: RunningBox, job: JobRecord) -> JobShape:
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return jobs.shape_of(box, job)
