"""What the box says of itself."""

import datetime
from typing import Any

from pydantic import Field

from appliance.wire.shape import Shape


class SystemShape(Shape):
    """The box at a glance."""

    name: str = "edge-appliance"
    version: str = Field(examples=["0.1.0"])
    ready: bool
    """Whether it answers inference requests."""
    uptime_s: float
    now: datetime.datetime
    python: str
    machine: str = Field(examples=["x86_64"])
    cores: int
    memory_total_bytes: int
    memory_available_bytes: int
    process_bytes: int
    """Proportional set size of the service."""
    disk_free_bytes: int
    """Free in the state folder."""
    policies: dict[str, str]
    models: int
    """Visible with this key."""
    applications: int
    """Visible with this key."""
    engine: dict[str, Any]
    """Requests that wait and run."""


class ProcessorShape(Shape):
    """A compute device as it is scheduled."""

    name: str = Field(examples=["cpu"])
    kind: str = Field(examples=["cpu"])
    workers: int
    threads_per_run: int
    memory_domain: str
    fingerprint: str
    """Library versions and device that prepared forms are made for."""


class EventShape(Shape):
    """Something that changed."""

    id: int
    at: str
    event: str = Field(examples=["variant loaded"])
    tenant: str | None
    facts: dict[str, Any]
