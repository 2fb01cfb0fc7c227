"""Uploads that arrive in pieces, and import jobs."""

import datetime

from pydantic import ConfigDict, Field

from appliance.domain.states import JobState
from appliance.wire.fields import INTEGER_MAX, Reason, Text, Whole
from appliance.wire.shape import Order, Shape


class UploadOrder(Order):
    """Announce a file."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"length": 209715200, "file_name": "detector.tar.gz"}]})

    length: Whole | None = Field(None, ge=0, le=INTEGER_MAX, examples=[209715200])
    """Bytes to come, when known; the upload is complete at exactly this offset."""
    sha256: str | None = Field(None, pattern="^[0-9a-fA-F]{64}$")
    """Digest of the whole file, checked when it is used."""
    file_name: Text = Field("", max_length=255, examples=["detector.tar.gz"])
    """For messages."""


class UploadShape(Shape):
    """A file on its way in. The next piece goes on at `offset`."""

    id: str = Field(examples=["01hf3k2m9x"])
    tenant: str
    offset: int = Field(examples=[104857600])
    """Bytes that are safely on disk."""
    length: int | None
    complete: bool
    file_name: str
    created_at: datetime.datetime
    updated_at: datetime.datetime


class JobShape(Shape):
    """One import, with its progress."""

    id: str = Field(examples=["01hf3k2m9x"])
    tenant: str
    model: str = Field(examples=["centerface"])
    state: JobState
    stage: str = Field(examples=["int8"])
    """What is being done."""
    percent: float = Field(examples=[62.5])
    """0..100 over all stages; never falls."""
    message: Reason
    """What happened so far; while the job waits for its turn, how many imports are before it; while requests leave it
    little of the processors, since when there is nothing new."""
    error: Reason
    """Why it failed, or what single variants failed of; empty when all is well."""
    created_at: datetime.datetime
    updated_at: datetime.datetime
