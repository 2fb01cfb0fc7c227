"""Requests worth a look."""

import datetime

from pydantic import Field

from appliance.domain.notable import Cause
from appliance.wire.shape import Shape


class RequestTimingsShape(Shape):
    """Where the time went, in milliseconds; what is left of `total` was spent between these."""

    decode: float = Field(examples=[1.2])
    queue: float = Field(examples=[0.4])
    load: float = Field(examples=[131.0])
    wake: float = Field(examples=[0.0])
    compute: float = Field(examples=[8.1])
    total: float = Field(examples=[141.3])


class NotableShape(Shape):
    """One request, without anything that it carried."""

    at: datetime.datetime
    """When it was over."""
    causes: list[Cause] = Field(examples=[["late", "cold"]])
    """`sample`: one of many that were none of the others."""
    id: str = Field(examples=["frame-17"])
    """As the caller named it in `/v2`; the `X-Request-Id` of an answer of `/v1`."""
    tenant: str | None = Field(examples=["harbour"])
    """Who asked; for admins."""
    variant: str | None = Field(examples=["int8"])
    """Which answered, or, of one that failed, which was asked for by name."""
    best: str | None = Field(examples=["fp32"])
    """The first choice at that time."""
    timings_ms: RequestTimingsShape
    slo_ms: float | None = Field(examples=[100.0])
    deadline_ms: float | None = Field(examples=[100.0])
    """Its own, from its arrival."""
    problem: str | None = Field(examples=["queue-full"])
    """Kind of the error that it got."""
    why: str = Field(examples=["no variant was in memory: int8 was loaded first (131 ms)"])
    decision: int | None = Field(examples=[4711])
    """The decision behind it, as far as it is known; see `GET /v1/decisions/{decision}`."""
    decision_reason: str | None = Field(None, examples=["takes the place of museum/guide, not expected for 40 s"])
    times: int = Field(1, examples=[1])
    """How many alike came right after it, itself included."""
