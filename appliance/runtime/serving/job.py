"""A request on its way from the queue to its answer, and the refusal of one that is too late."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.clock import NS_PER_MS, NS_PER_S, NS_PER_US
from appliance.domain.errors import DeadlineExceeded
from appliance.domain.request import Request
from appliance.domain.states import REQUEST_MOVES, RequestState, move
from appliance.policies.dispatch.base import Job as DispatchJob
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.profiles.times import RunTimes
from appliance.runtime.servable import Servable
from appliance.runtime.serving.parts import Rest

LONG_NS = 50 * NS_PER_MS
"""A run expected above this is long, and one of which nothing is known: who is over its share leaves the last free
worker to others."""
_AFTER_NS = NS_PER_US
"""The answer that a deadline has passed comes so long after it: a run that ends at the deadline itself is in time."""


@dataclass(slots=True, eq=False)
class Job:
    """A request with its pinned build and the future that its caller awaits."""

    request: Request
    servable: Servable
    build: LoadedBuild
    answer: asyncio.Future[Any]
    """Its outputs by name; of one in parts, what runs next (`Commitment`)."""
    state: RequestState = RequestState.ADMITTED
    times: RunTimes | None = None
    """What runs with such inputs take; None until the variant is profiled."""
    running: int = 1
    """Runs that were under way when its own began, that included; known to the first job of a run."""
    expected_ns: int | None = None
    """Run time to expect; None until the variant is profiled."""
    run_bytes: int = 0
    """Memory to expect for its run; 0 where that is not worth counting."""
    weights: tuple[float, float] = (1.0, 1.0)
    """The tenant's on the box, the application's in the tenant."""
    is_abandoned: bool = False
    """The caller went away during the run: the worker releases the build after it."""
    queued_ns: int = 0
    """When it came into the queue."""
    started_ns: int = 0
    finished_ns: int = 0
    charged_ns: int = 0
    """What its tenant was charged with when it was taken."""
    holds_ns: int = 0
    """For how long its run, with all who share it, is expected to hold a worker."""
    stops_ns: int | None = None
    """When its run, with all who share it, is stopped; None: never."""
    share: float = 1.0
    """Of its run, which others may have rows in, too."""
    run_items: int = 0
    """Of that run, with all who share it; the first of them that is answered knows it, for the run counts once."""
    place: list[Any] | None = None
    """Where it waits."""
    times_by_group: Mapping[int, RunTimes] | None = None
    """Of several groups of processors those that it may run on, by index, and what such runs take there ..."""
    expected_by_group: Mapping[int, int] | None = None
    """... and what its own is expected to take. Both None where there is one group, and until it is profiled."""
    also_on: Mapping[int, tuple[Servable, LoadedBuild]] | None = None
    """Of those the ones that run it as a build of a further kind, which it has pinned, too; None: none does."""
    group: int = 0
    """Which one runs it."""
    worth: float = 1.0
    """Of a nanosecond there, against one where it runs quickest: a tenant is not charged for slow cores."""
    waiting_ns: int = 0
    """What it adds to the backlog while it waits."""
    held_ns: int | None = None
    """Since when starts that are reserved keep it waiting; None: they do not ..."""
    gap_ns: int | None = None
    """... and how long its run may take before the next of them; None: as long as it likes."""
    company_by_ns: int | None = None
    """Until when it waits for others to share its run, where a plan has reserved that; None: nobody has asked yet."""
    behind_ns: int | None = None
    """Since when it waits behind what others' plans count on, itself beyond one; None: it does not."""
    rest: Rest | None = None
    """Of a network in parts, what is left: its worker begins with some of that and has its slot taken until they have
    run. None: it runs whole.
    """
    stated: DispatchJob | None = None
    """As the policy of dispatch saw it last ..."""
    stated_for: tuple[int, tuple[int, ...], Mapping[int, int] | None] | None = None
    """... and what that depends on: when its times begin, the groups that it may be weighed for, and
    `expected_by_group`. None: on what changes while it waits.
    """
    rows: int | None = None
    """See `items`; None: nobody has asked yet."""
    stepped_to: Mapping[str, tuple[int, ...]] | None = None
    """See `stepped`; None: nobody has asked yet."""

    @property
    def likely_ns(self) -> int:
        """How long its run may hold a worker: by the profile, or because the build's runs did so of late. Of a guarded
        build the profile says little: its time may depend on values. Of a network in parts what its runs took says
        nothing: each time another share of it runs.
        """
        if self.rest is not None and self.expected_ns is not None:
            return self.expected_ns
        recent_ns = self.build.recent_run_ns
        if self.expected_ns is None or (self.servable.is_guarded and not recent_ns):
            return max(LONG_NS + 1, recent_ns)
        return recent_ns if recent_ns > 2 * max(LONG_NS, self.expected_ns) else self.expected_ns

    @property
    def hoped_ns(self) -> Callable[[int, int, int], int] | None:
        """As `RunTimes.hoped_ns`, of what runs of it next; None: nobody knows."""
        if self.rest is not None:
            return self.rest.hoped_ns(self.group)
        return None if self.times is None else self.times.hoped_ns

    @property
    def items(self) -> int:
        """Rows that it brings."""
        if self.rows is None:
            self.rows = self.servable.items_of(self.request.inputs)
        return self.rows

    @property
    def took_ns(self) -> int:
        """What it had of its run, which is over."""
        return int((self.finished_ns - self.started_ns) * self.share)

    @property
    def worth_ns(self) -> int:
        """The same, as it is charged."""
        return int(self.took_ns * self.worth)

    def frees_in_ns(self, now_ns: int) -> int:
        """How long from now the worker of its run, which is under way, is expected to be free. A run that goes on for
        longer than was expected is expected to do so for as long again: nobody knows better, and who waits for it is
        not to wait for ever.
        """
        return max(1, abs(self.started_ns + self.holds_ns - now_ns))

    def is_able(self, group: int) -> bool:
        """Whether one of several groups of processors runs it."""
        return group in (self.expected_by_group or self.servable.places)

    def takes_ns(self, group: int) -> int:
        """What its run is expected to take on one of several groups of processors that run it; of a network in parts
        all that is left, if it goes on there; where nobody knows, it is taken for a long one.
        """
        known = self.expected_by_group
        return known[group] if known else self.likely_ns

    def build_on(self, group: int) -> LoadedBuild:
        """What it runs as on one of several groups of processors."""
        return self.also_on[group][1] if self.also_on and group in self.also_on else self.build

    def at_once_max(self, group: int) -> int | None:
        """Runs of its build that pay at once there; None: as many as there are workers, and of what is planned: that
        was weighed.
        """
        if self.request.batch or self.request.is_planned:
            return None
        servable = self.also_on[group][0] if self.also_on and group in self.also_on else self.servable
        return servable.at_once_max

    def runs_on(self, group: int) -> None:
        """It is handed to one of several groups of processors: what is expected of its run is what runs take there."""
        self.group = group
        if self.also_on and group in self.also_on:
            self.servable, self.build = self.also_on[group]
        if self.rest is not None:
            self.expected_ns = self.rest.holds_ns(group)
            self.worth = self.rest.worth(group)
        elif self.times_by_group and self.expected_by_group:
            self.times = self.times_by_group[group]
            self.expected_ns = self.expected_by_group[group]
            if self.expected_ns:
                self.worth = min(self.expected_by_group.values()) / self.expected_ns

    def joins(self, other: "Job") -> None:
        """Its rows run with those of another one that was handed out."""
        if self.build is not other.build:
            self.runs_on(other.group)
        self.worth = other.worth

    def left_ns(self, now_ns: int) -> int | None:
        """Until it is given up; None = never."""
        return None if self.request.drop_ns is None else self.request.drop_ns - now_ns

    @property
    def stepped(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes within which it may run with others; its own where its inputs are not padded."""
        if self.request.runs_alone:
            return self.request.shapes
        if self.stepped_to is None:
            self.stepped_to = self.servable.stepped(self.request)
        return self.stepped_to

    def may_run_with(self, other: "Job") -> bool:
        """Whether its rows can be put together with those of a job that was taken, or waits: the same build and
        outputs, and inputs alike but for their number of rows, and for what may be padded.
        """
        one, two = self.request, other.request
        if (self.rest is None) is not (other.rest is None):
            return False
        if self.rest is not None and other.rest is not None and not self.rest.may_join(other.rest):
            return False
        own = self.build if other.place is not None else self.build_on(other.group)  # it waits: it has no group yet
        if own is not other.build or one.outputs != two.outputs:
            return False
        if one.runs_alone or two.runs_alone:
            return False
        if one.inputs.keys() != two.inputs.keys():
            return False
        mine, others, items, other_items = self.stepped, other.stepped, self.items, other.items
        return all(
            shape == (items, *shape[1:])  # else rows of one input would meet those of another request
            and others[name] == (other_items, *shape[1:])
            and one.inputs[name].dtype == two.inputs[name].dtype
            for name, shape in mine.items()
        )

    def learn(self, items: int, running: int, *, is_whole: bool) -> None:
        """Its run of so many items, one of at most so many under way, has ended well: others will take as long. Not
        `is_whole`: it was stopped; where it has had more than was expected, others are taken to need half as much
        again.
        """
        took_ns = self.finished_ns - self.started_ns
        if not is_whole:
            took_ns = 0 if took_ns <= self.holds_ns else took_ns * 3 // 2
        if self.times is not None and took_ns:
            self.times.ran(items, min(running, self.at_once_max(self.group) or running), took_ns, self.finished_ns)

    def note_padded(self, *, has_failed: bool, is_certain: bool = False) -> None:
        """How a run has ended whose inputs, its own among them, were padded."""
        padding, unfit = self.servable.padding, self.servable.unfit
        if padding is not None and (has_failed or unfit):
            unfit.note(self.servable.steps_of(self.request.shapes), has_failed=has_failed, is_certain=is_certain)

    def to(self, state: RequestState) -> None:
        """Move along the table of request states."""
        self.state = move(REQUEST_MOVES, self.state, state)


class RunAgain(Exception):
    """Nothing of a request was answered, and nothing is wrong with it: the build that it waited for went with its
    process, or with its processor, or a run that it shared with others has failed. It is placed anew.
    """


def told_late_s(request: Request) -> float | None:
    """When its caller is told that its deadline has passed, in seconds of the event loop; None: never."""
    drop_ns = request.drop_ns
    return None if drop_ns is None else (drop_ns + _AFTER_NS) / NS_PER_S


def too_late(request: Request, expected_ns: int | None, now_ns: int) -> DeadlineExceeded:
    """The refusal of a request that a run of `expected_ns` would end too late."""
    return DeadlineExceeded(
        waited_ms=(now_ns - request.arrival_ns) / NS_PER_MS,
        expected_ms=None if expected_ns is None else expected_ns / NS_PER_MS,
        decoded_ms=request.decoded_ns / NS_PER_MS,
    )
