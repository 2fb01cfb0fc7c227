"""Waiting jobs as a policy of dispatch sees them. A job waits through many decisions, and nothing that a policy is told
of it changes meanwhile, so it is stated once, with times on a scale of its own (`now_ms`): to make all of them anew
takes longer than to decide.
"""

from collections.abc import Collection, Mapping, Sequence

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.policies.dispatch.base import FOREVER
from appliance.policies.dispatch.base import Job as DispatchJob
from appliance.policies.dispatch.partition import Partition, uncut
from appliance.runtime.ports import RunGroup
from appliance.runtime.serving.job import Job
from appliance.runtime.serving.parts import Rest

_SCALE_NS = 60 * NS_PER_S
"""Times are on one scale for so long: small numbers are told apart to less than any policy does."""
_PARTITIONS_MAX = 256


class DispatchJobs:
    """Event-loop thread only."""

    def __init__(self, groups: Sequence[RunGroup], fixed: Mapping[str, str]) -> None:
        """`fixed`: by model the group that it stays on, by name, for the policy that goes by that."""
        self._groups = tuple(groups)
        self._fixed = fixed
        self._partitions: dict[tuple[tuple[str, float], ...], Partition] = {}
        """By what a run takes on each group: nothing else of a network is asked."""
        self._from_ns = -_SCALE_NS
        """The moment 0 of the scale."""
        self._count = 0

    def now_ms(self, now_ns: int) -> float:
        """On the scale, which begins anew when it is over."""
        if now_ns - self._from_ns >= _SCALE_NS:
            self._from_ns = now_ns
        return rounded_ms(now_ns - self._from_ns)

    def of(self, job: Job, open_to: tuple[int, ...]) -> DispatchJob:
        """One of those that wait, for some groups; the same as at the last decision where nothing of it has changed."""
        stated_for = self._from_ns, open_to, job.expected_by_group
        if job.stated is None or job.stated_for != stated_for:
            self._count += 1
            job.stated = self._made(f"{self._count:012}", job, open_to, self._from_ns)
            # What nobody knows is expected by what runs took of late, which changes with each.
            job.stated_for = None if job.expected_by_group is None else stated_for
        return job.stated

    def anew(self, name: str, job: Job, open_to: tuple[int, ...], now_ns: int) -> DispatchJob:
        """The same by another name, with times from now on."""
        return self._made(name, job, open_to, now_ns)

    def fixed_to(self, job: Job) -> str | None:
        """The group on which a job stays, by name; None: nobody has said so."""
        return self._fixed.get(job.servable.variant.model_id)

    def _made(self, name: str, job: Job, open_to: Collection[int], from_ns: int) -> DispatchJob:
        request, rest = job.request, job.rest
        partition, at = (self._whole(job, open_to), None) if rest is None else (_left(rest, open_to), rest.at)
        drop_ns = request.drop_ns if request.drop_ns is not None else request.deadline_ns
        deadline_ms = FOREVER if drop_ns is None else rounded_ms(drop_ns - from_ns)
        arrival_ms = rounded_ms(request.arrival_ns - from_ns)
        queued_ms = None if rest is None or not rest.is_begun else rounded_ms(job.queued_ns - from_ns)
        return DispatchJob(
            name,
            partition,
            arrival_ms,
            deadline_ms,
            at=at,
            priority=request.priority,
            queued_ms=queued_ms,
            fixed=self.fixed_to(job),
        )

    def _whole(self, job: Job, open_to: Collection[int]) -> Partition:
        """A network that runs in one piece."""
        takes_ms = tuple(
            (self._groups[at].name, float(f"{job.takes_ns(at) / NS_PER_MS:.3g}")) for at in open_to if job.is_able(at)
        )
        partition = self._partitions.get(takes_ms)
        if partition is None:
            if len(self._partitions) >= _PARTITIONS_MAX:
                self._partitions.clear()
            partition = self._partitions[takes_ms] = uncut("run", dict(takes_ms))
        return partition


def _left(rest: Rest, open_to: Collection[int]) -> Partition:
    """What is left of a network in parts, on some groups where one of these runs all of it, else on all."""
    assert rest.partition is not None and rest.on is not None, "there are several groups"
    own = [at for at in rest.takes_ns if at in open_to]
    runs_all = any(rest.takes_ns[at].keys() >= set(rest.next) for at in own)
    return rest.on(own) if runs_all and len(own) < len(rest.takes_ns) else rest.partition


def rounded_ms(ns: int) -> float:
    """To about a microsecond, as a fraction that floats hold: so that sums and differences are exact when a decision is
    written down and asked for again.
    """
    return round(ns * 1024 / NS_PER_MS) / 1024
