"""From a form to an import request: the fields of `POST /v1/models` checked before anything is accepted."""

import json
import tarfile
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from appliance.api.http.forms import Form, FormFile
from appliance.domain.catalogue import Precision, TaskKind
from appliance.domain.errors import BadMetadata
from appliance.domain.jobs import MADE_PRECISIONS, ImportRequest
from appliance.domain.names import checked_name
from appliance.modelstore.stages.archive import MODEL_PART
from appliance.modelstore.store.disk import full_disk_is_typed, private_file
from appliance.tasks import parse_spec, strict_json
from appliance.tasks.metadata import LABELS_MAX

FIELDS = frozenset({"name", "task", "metadata", "upload", "shared", "application"})
PARTS = {"tokenizer": "tokenizer.json", "calibration": "calibration.part", "evaluation": "evaluation.part"}
"""Files of the form that go into the import beside the model, and their names there (`modelstore.stages.archive`)."""
FILES = frozenset({"file", "labels", *PARTS})
LABELS_BYTES_MAX = 8 * 2**20
SYNONYMS = {"preprocessing": "image", "pre_processing": "image"}


@dataclass(frozen=True, slots=True)
class Source:
    """Where the model's bytes lie on the box."""

    path: Path
    file_name: str


def check_fields(form: Form) -> None:
    """Raises: BadMetadata naming a field that means nothing here."""
    for name in (*form.fields, *form.files):
        if name not in FIELDS | FILES:
            known = ", ".join(sorted(FIELDS | FILES))
            raise BadMetadata(reason=f"unknown field {name!r} in the form; known are {known}")


def import_request(tenant: str, form: Form, source: Source) -> ImportRequest:
    """A model to import.

    Raises: BadName, BadMetadata naming the field or key.
    """
    metadata = _metadata(form)
    task = _task(form.fields.get("task") or metadata.pop("task", TaskKind.TENSOR.value))
    metadata.pop("task", None)
    name = checked_name(form.fields.get("name") or str(metadata.pop("name", "")), "model")
    metadata.pop("name", None)
    shared = _flag(form.fields.get("shared", metadata.pop("shared", False)), "shared")
    application = _text(form.fields.get("application", metadata.pop("application", None)), "application")
    precisions = _precisions(metadata.pop("precisions", None))
    if labels := _labels(form.files.get("labels")):
        metadata["labels"] = labels
    return ImportRequest(
        tenant=tenant,
        name=name,
        source=str(source.path),
        file_name=source.file_name,
        task=parse_spec(task, metadata),
        metadata=metadata,
        shared=shared,
        application=application,
        precisions=precisions,
    )


def pack(model: Path, form: Form, target: Path) -> None:
    """One archive of the model and what was sent beside it, opened by the import only. Blocks. Raises: StorageFull."""
    with full_disk_is_typed(), private_file(target) as file, tarfile.open(fileobj=file, mode="w") as archive:
        archive.add(model, MODEL_PART, recursive=False)
        for name, inside in PARTS.items():
            if name in form.files:
                archive.add(form.files[name].path, inside, recursive=False)


def _metadata(form: Form) -> dict[str, Any]:
    text = form.fields.get("metadata", "").strip()
    try:
        metadata = strict_json.read(text) if text else {}
    except json.JSONDecodeError as error:
        raise BadMetadata(reason=f"metadata cannot be read as JSON: {error}") from None
    if not isinstance(metadata, dict):
        raise BadMetadata(reason="metadata must be a JSON object")
    return {SYNONYMS.get(str(key), str(key)): value for key, value in metadata.items()}


def _task(value: Any) -> TaskKind:
    try:
        return TaskKind(value)
    except ValueError:
        raise BadMetadata(reason=f"unknown task {value!r}; use one of {', '.join(TaskKind)}") from None


def _text(value: Any, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise BadMetadata(reason=f"{name}: must be text, not {value!r}")
    return value


def _flag(value: Any, name: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}
    known = words.get(str(value).lower())
    if known is None:
        raise BadMetadata(reason=f"{name}: say true or false, not {value!r}")
    return known


def _precisions(value: Any) -> tuple[Precision, ...] | None:
    """Return the precisions to make; fp32 may be named, and is none of them."""
    if value is None:
        return None
    words = [precision.value for precision in (Precision.FP32, *MADE_PRECISIONS)]
    if not isinstance(value, list) or not all(word in words for word in value):
        raise BadMetadata(reason=f"precisions: a list of {', '.join(words)}")
    return tuple(precision for precision in MADE_PRECISIONS if precision.value in value)


def _labels(file: FormFile | None) -> list[str]:
    """One label a line."""
    if file is None:
        return []
    if file.size_bytes > LABELS_BYTES_MAX:
        raise BadMetadata(reason=f"the labels are larger than {LABELS_BYTES_MAX} bytes")
    try:
        with file.path.open(encoding="utf-8-sig") as lines:
            labels = list(islice(filter(None, map(str.strip, lines)), LABELS_MAX + 1))
    except UnicodeDecodeError:
        raise BadMetadata(reason="the labels are not UTF-8 text, one a line") from None
    return labels
