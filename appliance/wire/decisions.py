"""What the box decided, and why."""

import datetime
from typing import Any

from pydantic import Field

from appliance.wire.shape import Shape


class DecisionShape(Shape):
    """One decision, with what the policy knew. `appliance plan` takes `problem` and gives `answer` again."""

    id: int = Field(examples=[4711])
    at: datetime.datetime
    kind: str = Field(examples=["residency"])
    """`residency`, `neighbours`, `admission` (a request refused), `drop` (one that could not be in time), `budget`,
    `selection`, `adaptation` and `offload` (sessions), `pipeline` (`pipeline` of the answer names it) or `dispatch`
    (samples of what ran where).
    """
    application: str | None = Field(examples=["harbour/door"])
    """Which application asked; null when the box decided for itself, or another tenant's application asked."""
    concerned: list[str] = Field(examples=[["harbour/door", "harbour/gate"]])
    """Every application that asked or was changed."""
    tenants: list[str] = Field(examples=[["harbour"]])
    """Whose applications those are."""
    is_whole: bool
    """False when things of other tenants were left out; then the problem may have another answer."""
    problem: dict[str, Any] | None
    """In the format of `appliance plan`; seconds count from the decision. Null when another tenant's application asked.

    Where it cannot be decided again `plan` is null in it, and `why` says why.
    """
    answer: dict[str, Any]
    """In the format of `appliance plan`.

    `times`: how many decisions of this kind and cause this one stands for, where it is more than one. `folded`: their
    problems, each with the number of decisions that had it (`times`); 64 different ones at most.
    """
    reason: str
    """The policy's own words; empty when they name other tenants' applications."""
