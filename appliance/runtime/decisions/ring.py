"""Decisions with their inputs, in a bounded ring: what the box decided lately, and why (X-08)."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from appliance.clock import Clock


@dataclass(frozen=True, slots=True)
class Decision:
    """`decision` holds the policy's input and plan as they were."""

    at_ns: int
    kind: str
    decision: Mapping[str, object]


class DecisionRing:
    """Implements `DecisionSink` in memory; appending is all it does on the inference path."""

    def __init__(self, clock: Clock, len_max: int = 1000) -> None:
        self._clock = clock
        self._ring: deque[Decision] = deque(maxlen=len_max)

    def record(self, kind: str, decision: Mapping[str, object]) -> None:
        self._ring.append(Decision(self._clock.now_ns(), kind, decision))

    def recent(self) -> list[Decision]:
        """Oldest first."""
        return list(self._ring)
