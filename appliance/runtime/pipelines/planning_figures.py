"""What planning pipelines has come to since the start, for `/metrics` and measurements."""

from dataclasses import dataclass


@dataclass(slots=True)
class PlanningFigures:
    """Counts since the start."""

    plans: int = 0
    """Problems answered."""
    rounds: int = 0
    """Times that something was planned."""
    stale: int = 0
    """Rounds of which not every answer was applied, because what was asked about had changed."""
    given_up: int = 0
    """Rounds whose answer did not come in time."""
    last_ms: float = 0.0
    """What the latest round took."""
