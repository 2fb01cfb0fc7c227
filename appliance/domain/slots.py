"""What plans say about calls before they run: slots of calls, and starts that are reserved for planned batches."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

Lane = Hashable
"""A logical worker of a plan, which does one run at a time."""
Member = tuple[str, int]
"""A frame that a planned batch counts on: session and number."""


@dataclass(frozen=True, slots=True)
class Slot:
    """What a plan says about a call. A call without a plan has the defaults."""

    lane: Lane | None = None
    """It runs in this lane; with a `member`, in a planned batch of it."""
    member: Member | None = None
    rows: int = 0
    """Rows that a run of the lane is planned to have; 0: as many as all gain by."""
    not_before_ns: int = 0
    """It begins no sooner, on the clock's monotonic scale."""
    is_planned: bool = False
    """The plan has weighed the run of the call: starts that are reserved for other calls do not hold it back."""


NO_SLOT = Slot()
"""The slot of calls without a plan."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A run whose start a plan has reserved before its frames have come. It begins when all frames are in, and at the
    latest `grace_ns` after its start with those that are.
    """

    start_ns: int
    run_ns: int
    grace_ns: int
    members: frozenset[Member]
    takes_ns: Mapping[int, int] = field(default_factory=dict, compare=False)
    """Group of processors → run time there, where there are several; empty: `run_ns` on each."""
    variant: str = ""
    larger_ns: int | None = None
    """Run time with one frame more; None: there is no room for it."""

    @property
    def end_ns(self) -> int:
        """When missing frames are waited for no longer."""
        return self.start_ns + self.grace_ns


@dataclass(frozen=True, slots=True)
class PlannedRows:
    """What runs of a build wait for, by a plan of pipelines: so many rows, or until the first has waited so long."""

    rows: int
    wait_ns: int
    others_ns: int = 0
    """Run time of others that may go first when the wait is over."""
