"""What a device asks for when it joins."""

from dataclasses import dataclass

from appliance.domain.session import Promise


@dataclass(frozen=True, slots=True)
class JoinOrder:
    """The application, or the pipeline, was resolved, and may be called by the key."""

    tenant: str
    key_id: str
    application_id: str
    """Empty: its frames go through a pipeline."""
    fps: float
    promise: Promise
    name: str = ""
    weight: float = 1.0
    wait: bool = False
    rtt_ms: float | None = None
    uplink_bps: float | None = None
    """As the device knows its link; a prior, which frames correct."""
    pipeline_id: str = ""
