"""The health of the box."""

import datetime
from typing import Literal

from pydantic import Field

from appliance.domain.health.conditions import SubjectKind, Trouble
from appliance.wire.shape import Shape

State = Literal["good", "warn", "bad"]
"""`warn`: a person should look at it; `bad`: act now."""


class SubjectShape(Shape):
    """What has a condition."""

    kind: SubjectKind = Field(examples=["pipeline"])
    name: str = Field(examples=["signs"])
    """Name of the thing within its tenant; of a session or a key its id; empty for the box."""
    tenant: str | None = Field(examples=["harbour"])
    """Null: it belongs to the box."""


class ConditionShape(Shape):
    """Something that is wrong now. `docs/operations.md` explains each `id`."""

    id: Trouble = Field(examples=["pipeline-late"])
    severity: State = Field(examples=["warn"])
    """`warn`: a person should look at it; `bad`: act now."""
    subject: SubjectShape
    text: str = Field(examples=["Pipeline harbour/signs finishes too few frames in time."])
    detail: str = Field(examples=["12 of the last 80 frames were in time (200 ms)"])
    """The figures behind it, or the reason; empty for a tenant whose subject it is not."""
    action: str = Field(examples=["Allow a longer SLO, or send fewer frames."])
    """What to do."""
    since: datetime.datetime
    """When it was seen first."""


class CheckShape(Shape):
    """One thing that was looked at."""

    name: str = Field(examples=["disk"])
    status: State
    """The worst of its conditions. `warn`: look at it; `bad`: act now."""
    detail: str = Field(examples=["412 MB of 64.0 GB are free where the state folder is"])
    action: str = Field(examples=["Make room before the next import: it may need it."])
    """What to do; empty where nothing is wrong."""


class HealthShape(Shape):
    """Whether the box is well."""

    status: State
    """The worst of the conditions."""
    conditions: list[ConditionShape]
    """What is wrong, the worst first; 200 at most."""
    conditions_in_all: int
    checks: list[CheckShape]
