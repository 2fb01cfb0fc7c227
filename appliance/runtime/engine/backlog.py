"""How long a newcomer would wait: work that waits, in nanoseconds of expected run time, and how fast it is done.

Pure; O(tenants + applications of the tenant) a question.

Turns go by weight (`fairness`). So while work W of one tenant with weight w is done, another one with weight v and work
V before the same processors gets min(V, W v / w) done: the fluid model that fair queueing approximates (Parekh and
Gallager, "A generalized processor sharing approach to flow control in integrated services networks", IEEE/ACM
Transactions on Networking 1(3), 1993). The same holds between the applications of a tenant.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from appliance.clock import NS_PER_MS

_SPAN_NS = 250 * NS_PER_MS
"""Of uninterrupted work, over which its rate is measured."""
_NEW_SHARE = 0.5
"""Of what was measured last in the rate."""
_FASTER_MAX, _SLOWER_MAX = 2.0, 10.0
"""How far from its profile a processor is believed to work."""
_LONGER_MAX = 4.0
"""A run that takes longer than so many times what was expected says something about itself, and nothing about the
processor: a tenant's runs decide how long others are told that they would wait."""
_AGAIN_SHARE = 1 / 16
"""Of what is not believed of the processor, that is believed again with each run that nobody waits behind."""
LEAST_NS = NS_PER_MS // 2
"""Of any run, however short: handing it over and answering it takes time, too."""


@dataclass(slots=True)
class _Share:
    """Waiting work of one of those who share, and its weight."""

    work_ns: int = 0
    weight: float = 1.0

    def beside(self, virtual_ns: float) -> float:
        """What of it is done while others with weight 1 have so much done."""
        return min(self.work_ns, virtual_ns * self.weight)


@dataclass(slots=True)
class _Tenant(_Share):
    applications: dict[str, _Share] = field(default_factory=dict)


class Backlog:
    """Waiting work by tenant and application, and the rate at which work is done where some waits."""

    def __init__(self, workers: int) -> None:
        self.work_ns = 0
        """All that waits."""
        self._workers = workers
        self._rate = float(workers)
        """Nanoseconds of expected run time done in a nanosecond."""
        self._tenants: dict[str, _Tenant] = {}
        self._ready_ns = 0
        """Of what waits, what could run now: where a worker does nothing meanwhile it is not slow."""
        self._since_ns: int | None = None
        """Since when there was always something ready, and none of it measured yet."""
        self._done_ns = 0.0

    def add(
        self, tenant: str, application_id: str, work_ns: int, weights: tuple[float, float], *, is_ready: bool = True
    ) -> None:
        """More waits; `weights`: the tenant's on the box, the application's in the tenant. It is not ready while it is
        still being sent.
        """
        found = self._tenants.get(tenant)
        if found is None:
            found = self._tenants[tenant] = _Tenant()
        share = found.applications.get(application_id)
        if share is None:
            share = found.applications[application_id] = _Share()
        found.weight, share.weight = weights
        found.work_ns += work_ns
        share.work_ns += work_ns
        self.work_ns += work_ns
        if is_ready:
            self._ready_ns += work_ns

    def remove(self, tenant: str, application_id: str, work_ns: int, *, is_ready: bool = True) -> None:
        """Take work out that waits no longer, for whatever reason; `is_ready` as it was added."""
        found = self._tenants[tenant]
        share = found.applications[application_id]
        share.work_ns -= work_ns
        found.work_ns -= work_ns
        self.work_ns -= work_ns
        if not share.work_ns:
            del found.applications[application_id]
            if not found.applications:
                del self._tenants[tenant]
        if is_ready:
            self._ready_ns -= work_ns
        if not self._ready_ns:
            self._since_ns = None

    def done(self, work_ns: int, took_ns: int, now_ns: int) -> None:
        """A run that was expected to take `work_ns` has ended."""
        if not self._ready_ns:
            self._rate += _AGAIN_SHARE * max(0.0, self._workers - self._rate)
            return
        if self._since_ns is None:
            self._since_ns, self._done_ns = now_ns, 0.0
            return
        span_ns = now_ns - self._since_ns
        self._done_ns += max(work_ns, took_ns / _LONGER_MAX)
        if span_ns >= _SPAN_NS:
            measured = min(max(self._done_ns / span_ns, self._workers / _SLOWER_MAX), self._workers * _FASTER_MAX)
            self._rate += _NEW_SHARE * (measured - self._rate)
            self._since_ns, self._done_ns = now_ns, 0.0

    def most_ns(self, work_ns: int, rests_ns: Sequence[int] = ()) -> int:
        """No less than `end_ns`, whosever `work_ns` are: after all that waits, and all that is under way."""
        return int((self.work_ns + work_ns + sum(rests_ns)) / self._rate)

    def end_ns(
        self,
        tenant: str,
        application_id: str,
        work_ns: int,
        weights: tuple[float, float],
        *,
        ahead_ns: int | None = None,
        lead_ns: float = 0.0,
        rests_ns: Sequence[int] = (),
    ) -> int:
        """Nanoseconds until `work_ns` more of an application would be done.

        `ahead_ns`: what of its own waiting work goes before; None: all. `lead_ns`: what its tenant has had more of than
        the others, by weight 1 (`fairness`). Others are served while that is made up and what is ahead is done, not
        beside the run itself: it begins when its turn comes. `rests_ns`: for how long each run under way is expected
        to hold its worker yet; work is divided so that all are done at once, but by those who are free by then.
        """
        in_line = 0.0
        found = self._tenants.get(tenant)
        if found is not None:
            share = found.applications.get(application_id)
            before_ns = ahead_ns if ahead_ns is not None else share.work_ns if share is not None else 0
            in_line = before_ns + sum(
                other.beside(before_ns / weights[1])
                for name, other in found.applications.items()
                if name != application_id
            )
        until = in_line / weights[0] + lead_ns
        others = sum(other.beside(until) for name, other in self._tenants.items() if name != tenant)
        work = in_line + work_ns + others
        rests = accumulate(sorted([*rests_ns, *[0] * (self._workers - len(rests_ns))]))
        level = min((work + rest) / workers for workers, rest in enumerate(rests, start=1))
        return int(level * self._workers / self._rate)
