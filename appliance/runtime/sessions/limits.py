"""Bounds on sessions."""

from dataclasses import dataclass

from appliance.clock import NS_PER_S


@dataclass(frozen=True, slots=True)
class Limits:
    """As the box is set up."""

    per_tenant_max: int = 256
    all_max: int = 1024
    credit: int = 2
    """Frames of a session that may be on their way without acknowledgement."""
    idle_ns: int = 60 * NS_PER_S
    """A session of which nothing was heard for so long ends."""
    answers_bytes_max: int = 64 * 2**20
    """Of all answers that devices may ask for again."""
    pools_max: int = 32
    """In so many ways the sessions of a tenant may differ: by application, kind of promise, least accuracy and, where
    accuracy is promised, frame rate. Each is planned by itself."""
