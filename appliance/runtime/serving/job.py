"""A request on its way from the queue to its answer, and the refusal of one that is too late."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.clock import NS_PER_MS
from appliance.domain.errors import DeadlineExceeded
from appliance.domain.padding import widest
from appliance.domain.request import Request
from appliance.domain.states import REQUEST_MOVES, RequestState, move
from appliance.policies.dispatch.base import Job as DispatchJob
from appliance.runtime.engine.work import LONG_NS, Call, Run
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.profiles.times import RunTimes
from appliance.runtime.servable import Servable
from appliance.runtime.serving.parts import Rest


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
    expected_ns: int | None = None
    """Run time to expect; None until the variant is profiled."""
    run_bytes: int = 0
    """Memory to expect for its run; 0 where that is not worth counting."""
    weights: tuple[float, float] = (1.0, 1.0)
    """The tenant's on the box, the application's in the tenant."""
    is_abandoned: bool = False
    """The caller went away during the run: the worker releases the build after it."""
    call: Call | None = None
    """As the scheduler has it; None: it was not put yet."""
    queued_ns: int = 0
    """When it came into the queue."""
    started_ns: int = 0
    finished_ns: int = 0
    stops_ns: int | None = None
    """When its run, with all who share it, is stopped; None: never."""
    share: float = 1.0
    """Of its run, which others may have rows in, too."""
    run_items: int = 0
    """Of that run, with all who share it; the first of them that is answered knows it, for the run counts once."""
    times_by_group: Mapping[int, RunTimes] | None = None
    """Of several groups of processors those that it may run on, by index, and what such runs take there ..."""
    expected_by_group: Mapping[int, int] | None = None
    """... and what its own is expected to take. Both None where there is one group, and until it is profiled."""
    also_on: Mapping[int, tuple[Servable, LoadedBuild]] | None = None
    """Of those the ones that run it as a build of a further kind, which it has pinned, too; None: none does."""
    group: int = 0
    """Which one runs it."""
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

    def hoped_on(self, group: int) -> Callable[[int, int, int], int] | None:
        """Return `RunTimes.hoped_ns` of what runs of it next in a group of processors; None: nothing is known."""
        if self.rest is not None:
            return self.rest.hoped_ns(group)
        times = self.times_by_group.get(group) if self.times_by_group else self.times
        return None if times is None else times.hoped_ns

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

    def at_once_on(self, group: int) -> int | None:
        """Return how many runs of its build pay at once there; None: as many as there are workers."""
        servable = self.also_on[group][0] if self.also_on and group in self.also_on else self.servable
        return servable.at_once_max

    def begins(self, run: Run) -> None:
        """Its run begins, in one of several groups of processors: what is expected of it is what runs take there."""
        self.group = group = run.group
        if self.also_on and group in self.also_on:
            self.servable, self.build = self.also_on[group]
        if self.rest is not None:
            self.expected_ns = self.rest.holds_ns(group)
        elif self.times_by_group and self.expected_by_group and group in self.times_by_group:
            self.times = self.times_by_group[group]
            self.expected_ns = self.expected_by_group[group]
        if len(run.calls) > 1:
            self.share = self.items / run.rows

    def forget_call(self) -> None:
        """Let go of the scheduler's call, which has ended or was refused: a circle would keep the tensors."""
        if self.call is not None:
            self.call.let_go()
            self.call = None

    @property
    def stepped(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes within which it may run with others; its own where its inputs are not padded."""
        if self.request.runs_alone:
            return self.request.shapes
        if self.stepped_to is None:
            self.stepped_to = self.servable.stepped(self.request)
        return self.stepped_to

    def may_run_with(self, other: "Job", group: int) -> bool:
        """Return whether its rows can be put together with those of a job that is about to run in a group: the same
        build and outputs, and inputs alike but for their number of rows, and for what may be padded.
        """
        one, two = self.request, other.request
        if (self.rest is None) is not (other.rest is None):
            return False
        if self.rest is not None and other.rest is not None and not self.rest.may_join(other.rest):
            return False
        if self.build_on(group) is not other.build_on(group) or one.outputs != two.outputs:
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

    def learn(self, items: int, running: int, run: Run, *, is_whole: bool) -> None:
        """Its run of so many items, one of at most so many under way, has ended well: others will take as long. Not
        `is_whole`: it was stopped; where it has had more than was expected, others are taken to need half as much
        again.
        """
        took_ns = self.finished_ns - self.started_ns
        if not is_whole:
            took_ns = 0 if took_ns <= run.holds_ns else took_ns * 3 // 2
        if self.times is not None and took_ns:
            most = None if self.request.slot.is_planned else self.at_once_on(self.group)
            self.times.ran(items, min(running, most or running), took_ns, self.finished_ns)

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


def too_late(request: Request, expected_ns: int | None, now_ns: int) -> DeadlineExceeded:
    """The refusal of a request that a run of `expected_ns` would end too late."""
    return DeadlineExceeded(
        waited_ms=(now_ns - request.arrival_ns) / NS_PER_MS,
        expected_ms=None if expected_ns is None else expected_ns / NS_PER_MS,
        decoded_ms=request.decoded_ns / NS_PER_MS,
    )


def shapes_of(jobs: Sequence[Job]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs of a run that some jobs share, or of the run of one."""
    first = jobs[0]
    if first.servable.padding is None and len(jobs) == 1:
        return first.request.shapes
    if len(jobs) == 1:
        return dict(first.stepped) if first.servable.goes_in_steps else first.request.shapes
    rows = sum(job.items for job in jobs)
    shapes = first.stepped if first.servable.goes_in_steps else widest([job.request.shapes for job in jobs])
    return {name: (rows, *shape[1:]) for name, shape in shapes.items()}
