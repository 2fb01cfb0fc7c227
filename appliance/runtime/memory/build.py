"""One build and where it is with respect to memory.

Only `memory` writes these records, but for what runs took, which `serving` notes; the rest of the runtime reads them.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.states import RESIDENCY_MOVES, ResidencyState, move

RECENT_NS = 60 * NS_PER_S
"""A run of a guarded build is one of its recent ones for so long."""


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
    wakes: int = 0
    wake_ns: int = 0
    """What the last wake took."""
    is_woken: bool = False
    """It came into memory by waking, not by a load."""
    is_read: bool = False
    """Its file was read ahead since it sleeps."""
    handle: Any = None
    """The processor's; a build that sleeps keeps it."""
    asleep_bytes: int | None = None
    """What it takes asleep, as measured; None where it cannot sleep, or nobody knows."""
    kept_bytes: int = 0
    """Of `bytes`, what stays when it is asleep: while it sleeps, and on its way there and back."""
    promised_bytes: int | None = None
    """Of `bytes`, what was promised to the load under way; None before, and when it has come."""
    lender: "LoadedBuild | None" = None
    """The build that this one makes room for: it loads afterwards, and its promise lends what this load needs beside
    its own promise.
    """
    borrows_bytes: int = 0
    """So much, before the load begins."""
    owes_bytes: int = 0
    """So much, while it is under way."""
    borrowers: int = 0
    """Builds whose lender it is: it waits until they have come."""
    is_for_good: bool = False
    """It does not sleep when it leaves."""
    is_unwanted: bool = False
    """Nobody refers to it: its record goes with it."""
    overruns: int = 0
    """Inline runs, one after another, that took much longer than the profile had said."""
    rests_until_ns: int = 0
    """After some of these it runs on workers only, until then."""
    recent_run_ns: int = 0
    """What the longest of its latest runs took; each shorter one makes it an eighth less, of a guarded build a minute
    without a longer one does. Kept by the queue.
    """
    recent_run_at_ns: int = 0
    """When that one ended."""
    is_urgent: bool = True
    """A request waits for the load under way."""
    waits: bool = True
    """Where there is no room for it yet, its load waits; else it is given up."""
    waiters: int = 0
    """Requests that wait for it."""
    failures: int = 0
    """Loads, one after another, that came to nothing, room apart."""
    again_ns: int = 0
    """Until then only a request has it loaded: its last load failed."""
    successor_of: str | None = None
    """The build that leaves when this one has come."""
    on_change: Callable[[str], None] = lambda build_id: None
    """Told its id with every change of what others see of it: its state, its bytes, the first and the last pin."""
    loading: asyncio.Future[None] | None = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def need_bytes(self) -> int:
        """What a load, or a wake, needs free before it starts."""
        if self.handle is None:
            return max(self.peak_bytes, self.resident_bytes)
        return max(0, self.resident_bytes - self.kept_bytes)

    @property
    def is_there(self) -> bool:
        """Whether its bytes are taken or promised: not those of a load that has no room yet, or of a sleeper."""
        if self.state is ResidencyState.LOADING:
            return self.promised_bytes is not None
        return self.state is not ResidencyState.ASLEEP and self.bytes > 0

    def ran(self, took_ns: int, at_ns: int, *, fades: bool) -> None:
        """A run of it has ended. `fades`: short runs let a long one be forgotten; where the caller decides how long a
        run is, only time does.
        """
        recent_ns = self.recent_run_ns
        if fades:
            recent_ns = recent_ns * 7 // 8
        elif at_ns - self.recent_run_at_ns > RECENT_NS:
            recent_ns = 0
        if took_ns >= recent_ns:
            self.recent_run_at_ns = at_ns
        self.recent_run_ns = max(took_ns, recent_ns)

    def to(self, state: ResidencyState) -> None:
        """Move along the table of residency states."""
        self.state = move(RESIDENCY_MOVES, self.state, state)
        self.on_change(self.build_id)

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
            "wakes": self.wakes,
            "wake_ms": self.wake_ns / NS_PER_MS,
            "applications": list(applications),
        }
