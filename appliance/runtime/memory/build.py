"""One build and where it is with respect to memory.

Only `memory` writes these records, but for what runs took, which `serving` notes; the rest of the runtime reads them.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.clock import NS_PER_MS
from appliance.domain.states import RESIDENCY_MOVES, ResidencyState, move


@dataclass(slots=True)
class LoadedBuild:
    """`bytes` is what the ledger counts for the build now; `pins` are requests that wait for it or use it."""

    build_id: str
    resident_bytes: int
    peak_bytes: int
    state: ResidencyState = ResidencyState.ABSENT
    bytes: int = 0
    pins: int = 0
    last_used_ns: int = 0
    loads: int = 0
    load_ns: int = 0
    handle: Any = None
    overruns: int = 0
    """Inline runs, one after another, that took much longer than the profile had said."""
    recent_run_ns: int = 0
    """What the longest of its latest runs took; each shorter one makes it an eighth less, of a guarded build a minute
    without a longer one does. Kept by the queue.
    """
    recent_run_at_ns: int = 0
    """When that one ended."""
    is_urgent: bool = True
    """A request waits for the load under way."""
    successor_of: str | None = None
    """The build that leaves when this one has come."""
    loading: asyncio.Future[None] | None = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def need_bytes(self) -> int:
        """What a load needs free before it starts."""
        return max(self.peak_bytes, self.resident_bytes)

    def to(self, state: ResidencyState) -> None:
        """Move along the table of residency states."""
        self.state = move(RESIDENCY_MOVES, self.state, state)

    def row(self, now_ns: int, applications: Sequence[str]) -> dict[str, Any]:
        """For `/v1/memory`."""
        return {
            "build": self.build_id,
            "state": self.state.value,
            "bytes": self.bytes,
            "resident_bytes": self.resident_bytes,
            "peak_bytes": self.peak_bytes,
            "pins": self.pins,
            "idle_ms": (now_ns - self.last_used_ns) / NS_PER_MS if self.last_used_ns else None,
            "loads": self.loads,
            "load_ms": self.load_ns / NS_PER_MS,
            "applications": list(applications),
        }
