"""Calls that wait for processors, what plans say about them, and what the scheduler decides.

All times are integer nanoseconds of one monotonic clock; `run_ns` and the like are lengths of time.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from appliance.clock import NS_PER_MS
from appliance.domain.request import FrameStanding
from appliance.domain.slots import NO_SLOT, Lane, Slot

FOREVER_NS = 1 << 62
LONG_NS = 50 * NS_PER_MS
"""A run above this is long: a tenant over its share leaves the last idle worker to others rather than begin it."""


class Kind(Enum):
    """What a call belongs to."""

    PLAIN = auto()
    """A request of its own."""
    FRAME = auto()
    """A frame of a session."""
    ITEM = auto()
    """One piece of a pipeline's frame, for example a face that was found in it."""


class CallState(Enum):
    """`ANNOUNCED` (its body is still read) → `WAITING` → `RUNNING` → `ENDED`; a waiting call may end without a run."""

    ANNOUNCED = auto()
    WAITING = auto()
    RUNNING = auto()
    ENDED = auto()


class Reason(Enum):
    """Why a waiting call does not begin although a worker is idle."""

    NOT_BEFORE = auto()
    """Its slot begins later."""
    COMPANY = auto()
    """Others that are planned to share its run have not come."""
    LANE = auto()
    """The run before it in its lane has not ended."""
    RESERVED = auto()
    """The idle worker is kept for a planned batch."""
    AT_ONCE = auto()
    """As many runs of its build are under way as pay at once."""
    LAST_WORKER = auto()
    """A long run leaves the last idle worker to tenants that have used less."""
    BETTER_ELSEWHERE = auto()
    """The call ends sooner on a group that is busy, or is left to that because the idle group is throttled."""
    NO_GROUP = auto()
    """No group that is idle runs it."""


class Why(Enum):
    """Why a call ended without a result of a run."""

    LATE = auto()
    """A run that began now would end after its deadline."""
    EXPIRED = auto()
    """Its deadline has passed. A run that is under way goes on, and answers nobody."""
    REPLACE = auto()
    """Its build was lost: it is placed anew."""
    NO_MEMORY = auto()
    """There is no memory for its run."""


class RefusedBy(Enum):
    """Which bound refused a call."""

    LENGTH = auto()
    """Too many calls of its tenant wait for its application, or too many in all."""
    WAIT = auto()
    """It would be answered too late, or wait too long."""


@dataclass(slots=True, eq=False)
class Option:
    """One way to run a call."""

    group: int
    build: str
    run_ns: int
    """Expected when the call was put."""
    is_known: bool = True
    """Whether runs of the build were timed."""
    at_once_max: int | None = None
    """Runs of the build that pay at once in the group; None: as many as there are workers."""
    together_max: int = 1
    """Rows that a run may have."""
    times: Any = None
    """The record of run times that `Environment.run_ns` reads."""


@dataclass(slots=True, eq=False)
class Call:
    """A unit of work between the API and a worker."""

    tenant: str
    application: str
    options: tuple[Option, ...]
    kind: Kind = Kind.PLAIN
    slot: Slot = NO_SLOT
    weights: tuple[float, float] = (1.0, 1.0)
    """The tenant's on the box, the application's in the tenant."""
    drop_ns: int | None = None
    """When its answer is worth nothing; None: never."""
    deadline_ns: int | None = None
    """What orders calls of equal priority; an application may want answers that are late."""
    priority: int = 0
    rows: int = 1
    size: int = 0
    """Elements of a row; calls of different sizes share a run by padding."""
    variant: str = ""
    likely_ns: int = 0
    """Expected time on the group that runs it quickest; a call of which nothing is known counts as long."""
    known_ns: int = 0
    """The same; 0 where nothing is known: such a call is never late before it runs."""
    frame: FrameStanding | None = None
    """Shared by the items of a pipeline's frame."""
    behind_ns: int = 0
    """What a frame has to run after this item."""
    beyond: bool | None = None
    """Whether it exceeds what a pipeline's plan counts on; None: no plan counts on it."""
    runs_alone: bool = False
    """It shares no run: a shared one has failed."""
    mixes_tenants: bool = False
    """Its network is trusted to keep the rows of tenants apart."""
    is_in_parts: bool = False
    """Its network runs in parts, which the placement chooses."""
    was_let_in: bool = False
    """It is not refused: it runs anew, or some of it has run."""
    home: int | None = None
    """The group that a policy fixes it to."""
    is_begun: bool = False
    """Some of its network has run: the rest goes before calls of its application that have not begun."""
    reference: Any = None
    """The engine's own record of the call; the scheduler never looks at it."""

    # -- state, which only the scheduler changes --
    state: CallState = CallState.ANNOUNCED
    key: tuple[int, int, int, int] | None = None
    """Its place in the line of its application: (lost frame, priority, urgency, number)."""
    work_ns: int = 0
    """Expected run time that the call adds to the backlog while it waits."""
    held: Reason | None = None
    held_until_ns: int = 0
    """When the reason ends by itself; 0: an event ends it."""
    reserved_since_ns: int | None = None
    """Since when reserved starts hold it back."""
    batch: Any = None
    """The planned batch that it came to."""
    company_by_ns: int | None = None
    """Until when the call waits for planned rows; None: its turn has not come yet."""
    behind_since_ns: int | None = None
    """Since when planned work of others goes before it."""

    def let_go(self) -> None:
        """Forget the engine's record of a call that has ended: what still refers to the call would keep its tensors."""
        self.reference, self.options = None, ()


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What the scheduler knows of a group of processors."""

    workers: int
    takes_runs: bool = True
    """Runs may begin in the group: it serves, and no measurement is under way there."""
    is_throttled: bool = False


@dataclass(slots=True, eq=False)
class Run:
    """Calls that a worker of a group computes together."""

    calls: list[Call]
    option: Option
    began_ns: int
    holds_ns: int
    """For how long it is expected to hold its worker."""
    worth: float = 1.0
    """Of a nanosecond in its group, against the group that runs it quickest: a tenant pays for work, not for slow
    processors.
    """
    ops: tuple[str, ...] = ()
    """Of a network in parts: what runs next."""
    lane: Lane | None = None
    charges: list[int] = field(default_factory=list)
    """What each call was charged with when the run began."""
    running: int = 1
    """Runs under way when it began, itself included."""

    @property
    def group(self) -> int:
        """The group of processors that computes it."""
        return self.option.group

    @property
    def rows(self) -> int:
        """Rows of all its calls."""
        return sum(call.rows for call in self.calls)

    def frees_in_ns(self, now_ns: int) -> int:
        """Return the time until its worker is expected to be free. A run that has taken longer than expected is
        expected to go on for as long again as it is overdue.
        """
        return max(1, abs(self.began_ns + self.holds_ns - now_ns))


@dataclass(frozen=True, slots=True)
class Out:
    """A call that ends without a result."""

    call: Call
    why: Why


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that was not let in. Times from now."""

    by: RefusedBy
    expected_ns: int = 0
    allowed_ns: int = 0
    waiting: int = 0

    @property
    def retry_after_ns(self) -> int:
        """Time after which the call could be answered in time."""
        return max(0, self.expected_ns - self.allowed_ns)


@dataclass(slots=True, eq=False)
class Decision:
    """What begins and what ends now, and when the scheduler has to be asked again if nothing happens before."""

    starts: tuple[Run, ...] = ()
    outs: tuple[Out, ...] = ()
    next_look_ns: int | None = None
