"""Runs that workers have, each by the first of its jobs: for how long they are expected to go on, and which should have
ended long ago. Event-loop thread only.
"""

from collections.abc import Callable, Iterator
from typing import Any

from appliance.clock import NS_PER_S, Clock
from appliance.runtime.memory.build import LoadedBuild
from appliance.runtime.memory.loader import handles_of
from appliance.runtime.serving.job import LONG_NS, Job

_PATIENCE = 4
"""Times what is expected of a run it may take before it is held to hang: others are at work on the machine, too."""
_RECENT_NS = 60 * NS_PER_S
"""A run of a guarded build is one of its recent ones for so long."""


class RunsUnderWay:
    """To be iterated over: the first job of each."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._first: dict[Job, None] = {}

    def __iter__(self) -> Iterator[Job]:
        return iter(self._first)

    def begin(self, job: Job) -> None:
        """The run of a job that was taken begins."""
        self._first[job] = None
        job.started_ns = self._clock.now_ns()
        job.holds_ns = job.likely_ns
        job.charged_ns = int(job.holds_ns * job.worth)

    def end(self, job: Job, took_ns: int) -> None:
        """It is over, or has never begun; `job` may also be one that shared it, and had `took_ns` of it."""
        self._first.pop(job, None)
        if job.rest is None:
            _note_run(job.build, took_ns, job.finished_ns, fades=not job.servable.is_guarded)

    @property
    def have_parts(self) -> bool:
        """Whether one is of a network in parts."""
        for job in self._first:  # noqa: SIM110 - nobody is staged before this was asked: a generator takes twice as long
            if job.rest is not None:
                return True
        return False

    def is_full(self, job: Job, group: int = 0) -> bool:
        """Whether as many runs of the build that a job has in a group of processors are under way there as pay at
        once. Those do not count that go on for much longer than its own: it would not gain by waiting for them, and who
        sends large inputs keeps nobody else's small ones waiting.
        """
        most = job.at_once_max(group)
        if most is None:
            return False
        now_ns, patience_ns = self._clock.now_ns(), max(LONG_NS, 2 * job.takes_ns(group))
        return sum(one.frees_in_ns(now_ns) <= patience_ns for one in self.of_build(job, group)) >= most

    def of_build(self, job: Job, group: int = 0) -> list[Job]:
        """The runs of that build there, by the first job of each."""
        build = job.build_on(group)
        return [one for one in self._first if one.group == group and one.build is build]

    def rests_ns(self, but: Job | None = None) -> list[int]:
        """For how long each run under way is expected to go on; not that of `but`, and none of which nobody knows."""
        now_ns, rests_ns = self._clock.now_ns(), []
        for job in self._first:  # a loop: it is asked for each request, twice
            rest_ns = job.started_ns + job.holds_ns - now_ns
            if rest_ns > 0 and job is not but and job.expected_ns is not None:
                rests_ns.append(rest_ns)
        return rests_ns

    def rest_ns(self, is_of: Callable[[Any], bool], begun_ns: int, now_ns: int) -> int:
        """How much longer a run may take that the processor began at `begun_ns`, and is one of those under way, by the
        handle of its build: until it has had `_PATIENCE` times what was expected of it, all who share it and all beside
        it counted. 0: it has had that. Jobs that began later are none of it, though they have the same build.
        """
        ends = (
            job.started_ns + _PATIENCE * job.holds_ns
            for job in self._first
            if job.started_ns <= begun_ns and any(map(is_of, handles_of(job.build.handle)))
        )
        return max([0, *(end_ns - now_ns for end_ns in ends)])

    def overdue_ns(self, now_ns: int) -> int:
        """How long ago the run under way should have ended that is most behind, by when it was stopped and by what was
        expected of it. Not of runs that nobody stops, for what is expected may be wrong, nor of those in guards, which
        end with their process. 0: none is behind.
        """
        ends = (
            max(job.stops_ns, job.started_ns + job.holds_ns)
            for job in self._first
            if job.stops_ns is not None and not job.servable.is_guarded
        )
        return max([0, *(now_ns - end_ns for end_ns in ends)])


def _note_run(build: LoadedBuild, took_ns: int, at_ns: int, *, fades: bool) -> None:
    """`fades`: short runs let a long one be forgotten; where the caller decides how long a run is, only time does."""
    recent_ns = build.recent_run_ns
    if fades:
        recent_ns = recent_ns * 7 // 8
    elif at_ns - build.recent_run_at_ns > _RECENT_NS:
        recent_ns = 0
    if took_ns >= recent_ns:
        build.recent_run_at_ns = at_ns
    build.recent_run_ns = max(took_ns, recent_ns)
