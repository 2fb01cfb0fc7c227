"""A request that is answered later: how far it is, and what came of it."""

from typing import Any

from pydantic import Field

from appliance.domain.request import DeferredState
from appliance.wire.pipelines import FrameShape
from appliance.wire.predict import PredictShape
from appliance.wire.shape import Shape


class RequestShape(Shape):
    """A request that is answered later. What came of it is kept for a minute."""

    id: str = Field(examples=["0f8fad5bd9cb469fa16570867728950e"])
    state: DeferredState
    result: PredictShape | FrameShape | None = None
    """What `predict` answers, of an application or of a pipeline; of a request that is done."""
    problem: dict[str, Any] | None = Field(
        None, examples=[{"type": "/problems/deadline-exceeded", "title": "The deadline passed", "status": 504}]
    )
    """The problem document (RFC 9457) that `predict` answers; of a request that failed."""
