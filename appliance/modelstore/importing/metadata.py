"""The task of a model: what its graph tells, corrected by what its archive says, corrected by what the uploader
said.
"""

from dataclasses import fields, replace
from typing import Any

from appliance.domain.catalogue import Precision, TaskKind, TaskSpec
from appliance.domain.errors import BadMetadata
from appliance.domain.jobs import MADE_PRECISIONS, ImportRequest
from appliance.modelstore.importing.growth import check_stated
from appliance.modelstore.orders import Inspection, Unpacked
from appliance.tasks import TASKS, infer_spec, parse_spec
from appliance.tasks.base import ChecksModel, Target
from appliance.tasks.metadata import BESIDE

SYNONYMS = {"preprocessing": "image", "pre_processing": "image"}


def stated_task(request: ImportRequest, unpacked: Unpacked) -> TaskSpec:
    """What people said, without a look at the graph; for the inspection. Raises: BadMetadata naming the key."""
    return _corrected(request, unpacked, TaskSpec())


def settled_task(request: ImportRequest, unpacked: Unpacked, inspection: Inspection) -> TaskSpec:
    """The task that serves. Raises: BadMetadata naming the key, also where the network cannot do the task."""
    kind = _kind(request, unpacked)
    needed = [tensor for tensor in inspection.inputs if tensor.name not in inspection.defaults]
    inferred = infer_spec(kind, needed, inspection.outputs, inspection.metadata_props)
    task = _corrected(request, unpacked, inferred)
    check_stated(task, inspection.inputs)
    task = replace(
        task, index_limits=inspection.index_limits, examples=inspection.examples, defaults=inspection.defaults
    )
    if isinstance(found := TASKS[kind], ChecksModel):
        found.check(task, Target(inspection.inputs, inspection.outputs))
    return task


def settled_precisions(request: ImportRequest, unpacked: Unpacked) -> tuple[Precision, ...]:
    """Return what to make beside the original, in the order of making. Raises: BadMetadata."""
    wanted = unpacked.metadata.get("precisions") if request.precisions is None else request.precisions
    if wanted is None:
        return MADE_PRECISIONS
    known = [precision.value for precision in (Precision.FP32, *MADE_PRECISIONS)]
    if not isinstance(wanted, list | tuple) or not all(one in known for one in wanted):
        raise BadMetadata(reason=f"metadata: precisions: a list of {', '.join(known)}")
    return tuple(precision for precision in MADE_PRECISIONS if precision.value in wanted)


def _corrected(request: ImportRequest, unpacked: Unpacked, base: TaskSpec) -> TaskSpec:
    kind = _kind(request, unpacked)
    archived = {SYNONYMS.get(key, key): value for key, value in unpacked.metadata.items() if key not in BESIDE}
    if unpacked.labels and "labels" not in archived:
        archived["labels"] = list(unpacked.labels)
    spec = parse_spec(kind, request.metadata, base=parse_spec(kind, archived, base=base))
    if request.metadata:
        return spec
    empty = TaskSpec()  # a caller within the program states a task, not words: what is not the default was meant
    stated = {field.name: getattr(request.task, field.name) for field in fields(TaskSpec) if field.name != "kind"}
    return replace(spec, **{name: value for name, value in stated.items() if value != getattr(empty, name)})


def _kind(request: ImportRequest, unpacked: Unpacked) -> TaskKind:
    """The archive's word counts only where the uploader said nothing but the general kind."""
    stated: Any = unpacked.metadata.get("task")
    if request.task.kind is not TaskKind.TENSOR or stated is None:
        return request.task.kind
    try:
        return TaskKind(stated)
    except ValueError:
        raise BadMetadata(reason=f"metadata: task: use one of {', '.join(TaskKind)}") from None
