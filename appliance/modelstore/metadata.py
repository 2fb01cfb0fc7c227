"""What an archive says of its model, beneath what the uploader said."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic import ValidationError

from appliance.domain.catalogue import ImageSpec, Precision, StateSpec, TaskKind, TaskSpec
from appliance.domain.errors import BadMetadata
from appliance.domain.jobs import MADE_PRECISIONS, ImportRequest
from appliance.modelstore.orders import Unpacked
from appliance.wire.catalogue import ModelMetadata


def parsed(metadata: Mapping[str, Any]) -> ModelMetadata:
    """Raises: BadMetadata, naming the first field that is wrong."""
    try:
        return ModelMetadata.model_validate(metadata)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "metadata"
        raise BadMetadata(reason=f"metadata: {where}: {first['msg']}") from error


def task_of(kind: TaskKind, metadata: ModelMetadata) -> TaskSpec:
    """The task as metadata states it."""
    return TaskSpec(
        kind=kind,
        labels=metadata.labels,
        image=None if metadata.image is None else ImageSpec(**metadata.image.model_dump()),
        decoder=metadata.decoder,
        params=metadata.params,
        state=tuple(StateSpec(**state.model_dump()) for state in metadata.state),
        constants=metadata.constants,
    )


def settled_task(request: ImportRequest, unpacked: Unpacked) -> TaskSpec:
    """The uploader's task, with what it leaves open taken from metadata.json and labels.txt. Raises: BadMetadata."""
    found = task_of(_kind(request.task.kind, unpacked.metadata), parsed(unpacked.metadata))
    empty = TaskSpec()
    stated = {name: value for name, value in _fields(request.task).items() if value != getattr(empty, name)}
    task = TaskSpec(**(_fields(found) | stated))
    return task if task.labels else TaskSpec(**(_fields(task) | {"labels": unpacked.labels}))


def settled_precisions(request: ImportRequest, unpacked: Unpacked) -> tuple[Precision, ...]:
    """What to make beside fp32. Raises: BadMetadata."""
    wanted = request.precisions
    if wanted is None:
        wanted = parsed(unpacked.metadata).precisions
    if wanted is None:
        wanted = MADE_PRECISIONS
    return tuple(dict.fromkeys(one for one in wanted if one in MADE_PRECISIONS))


def _kind(stated: TaskKind, metadata: Mapping[str, Any]) -> TaskKind:
    if stated is not TaskKind.TENSOR or "task" not in metadata:
        return stated
    try:
        return TaskKind(str(metadata["task"]))
    except ValueError:
        raise BadMetadata(reason=f"metadata: task: use one of {', '.join(TaskKind)}") from None


def _fields(task: TaskSpec) -> dict[str, Any]:
    return {field.name: getattr(task, field.name) for field in fields(task)}
