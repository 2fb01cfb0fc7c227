"""The live wall: the last frame of each stream, for the keys that the tenant allows."""

from typing import Any

from pydantic import ConfigDict, Field

from appliance.domain.catalogue import WallViewers
from appliance.domain.session import DropCause, FrameEnd
from appliance.wire.shape import Order, Shape


class WallViewersOrder(Order):
    """Keys that may look at the frames of the tenant's streams from now on."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra={"examples": [{"viewers": "tenant"}]})

    viewers: WallViewers
    """`nobody`; `tenant`: keys of the tenant; `operator`: keys of the tenant and admin keys."""


class WallStreamShape(Shape):
    """The last frame of one stream."""

    stream: str = Field(examples=["5f0c2a9be1d04377"])
    """Id of the session, or of the pipeline's client."""
    name: str = Field(examples=["glasses-1"])
    """Name of the session; empty: it has none."""
    application: str | None = Field(examples=["gate"])
    """Application of the frame; null: the frame went through a pipeline."""
    pipeline: str | None = None
    frame: int | None = Field(examples=[132])
    """Number of the frame; null: it had none."""
    outcome: FrameEnd = Field(examples=["answered"])
    cause: DropCause | None = None
    age_ms: float = Field(examples=[48.2])
    """Time since the frame ended."""
    number: int = Field(examples=[17329000000])
    """Number by which `…/frame` fetches the picture of this frame."""
    picture: bool
    """True: `…/frame` has the picture, a JPEG or PNG that found room."""
    answer: dict[str, Any] | None = None
    """Answer of `predict`; null: there is none, or it is longer than 32 KiB."""


class WallShape(Shape):
    """The last frames of the tenant's streams."""

    viewers: WallViewers = Field(examples=["tenant"])
    may_look: bool
    """True: the key is among the viewers; else `streams` is empty."""
    streams: list[WallStreamShape]
    """Streams with a frame since the first look, at most 24."""
