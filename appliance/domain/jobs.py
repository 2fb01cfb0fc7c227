"""Import jobs: what is asked for, and how far it has come."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from appliance.domain.catalogue import Precision, TaskSpec
from appliance.domain.states import JobState

MADE_PRECISIONS = (Precision.INT8, Precision.FP16)
"""Precisions that are made beside the original unless told otherwise; the one that helps most boxes comes first."""


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """A model to be imported, or a tenant's own variant of a model that exists.

    The importer takes the files over: they are moved away when the job is accepted, and left alone when it is refused.
    """

    tenant: str
    name: str
    """Name of the model; of the existing model when `variant` is set."""
    source: str
    """Path of the uploaded file on the box: an ONNX file, or a tar or zip with one."""
    file_name: str = ""
    """The uploader's name of the file; for messages."""
    task: TaskSpec = field(default_factory=TaskSpec)
    """The kind of task, and for callers that have no `metadata` the rest of it."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The uploader's words (JSON) about the task; an archive's metadata.json and the graph itself fill in what they
    leave open.
    """
    shared: bool = False
    application: str | None = None
    """Name of the application made with the model; None: the model's own name; empty: no application."""
    precisions: tuple[Precision, ...] | None = None
    """Precisions to make beside the original; None: what the archive says, else all."""
    variant: str | None = None
    """Set: `source` is a tenant's own variant of this name for the existing model."""
    repairs: bool = False
    """The model is there, and lost files to damage: they are to be brought back. The importer decides it."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """A kind of processor that a content is to be measured on yet. `state`: `waiting` until nothing is imported, then
    `compiling` and `measuring`.
    """

    kind: str
    state: str


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A kind of processor that a content was tried on and does not run on, with the reason for a person."""

    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One import job. `percent` is 0..100 over all stages and never falls."""

    id: str
    tenant: str
    model_id: str
    state: JobState
    stage: str
    """What is being done, in a word or two: inspect, fp32, prepare fp32, int8 224x224 ..."""
    percent: float
    message: str
    """What happened so far, for a person."""
    error: str
    """Why it failed or what single variants failed of; empty when all is well."""
    created_at: datetime.datetime
    updated_at: datetime.datetime
