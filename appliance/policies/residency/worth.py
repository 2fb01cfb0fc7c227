"""What a variant in memory is worth from now on. Our own policy's view of forecasts, loads and cold starts.

An application's requests come at their predicted times, give or take a Laplace residual whose mean size is known
(`spread_ns`); without a forecast the next one comes at the rate that they had lately. A variant is worth the requests
that are expected while it is there, times the accuracy that it has over the smallest one; having nothing when a request
comes, be it absent or being loaded, costs `COLD_POINTS`. What comes later counts less, for until then the plan can be
made anew. So one scale says what an upgrade is worth, what a floor is worth, and what it costs to change variants, and
a floor gives way where it is surely not needed before it can be back.

Where it is known how many of an application's predictions are true (`prediction_hit_rate`), they count for no more than
that, and requests come at the rate besides.
"""

from collections.abc import Sequence
from math import exp

from appliance.policies.residency.base import ApplicationState, Option, ResidencyProblem

COLD_POINTS = 58.0
"""How many points of accuracy on one request outweigh that it starts cold."""
_COLD_POINTS_SHORT = 75.0
"""The same where not even the smallest variants fit together: to serve it somebody else must leave, who may be the
next.
"""
_COLD_POINTS_UNPREDICTED = 200.0
"""The same for a request that nobody predicted, while nothing is in memory: who is asked for seldom would else be
out of it for good, and cold each time.
"""
_COLD_POINTS_WAKING = 200.0
"""The same of an application whose smallest variant sleeps when it leaves: memory is given out anew at hardly any cost
then, with every look for whatever it seems to gain, so the chance of a cold start is taken more often than its
predictions bear, and a better variant need not be held long before its request.
"""
_LOOK_NS = 200_000_000
"""Who is without a variant that sleeps has it again no sooner than memory is given out next, whatever the wake takes.
The box does that at most five times a second."""
_STEADY = 16.0
"""Requests that nobody predicted come at a rate that lasts: who is not served while a variant loads for them counts
so many times less, for what it is loaded for goes on after it."""
_WIDER = 1.5
"""Predictions are taken to be so much further off than they were in the mean.

Those that were furthest off answered for no request, so they are not in it; and to take somebody's variant away for
a prediction that is wrong costs more than to leave it for one that is right."""
_LOADS = 2
_SPREADS = 0.4
"""A request counts 1/e less for every time that this many of the slowest loads and this many mean residuals take
together by which it comes later: long enough that a change can pay."""
_WAITS = 1.25
"""A load takes this much longer than alone: on the box and in the lab loads take their turns with those of others."""
_LEAST_RATE = 1e-15
"""Requests a nanosecond of those of whom nothing is known: nobody is impossible, and memory that is left goes to
them, too.
"""
_FAR = 20.0
"""In mean residuals: what is further away than this is not expected at all."""
_NEARLY_LEVEL = 1e-4
"""Where a density rises by less than this it is taken for level: the exact formula would lose its digits."""


class Outlook:
    """The applications of one problem, with how far a decision looks ahead."""

    def __init__(self, problem: ResidencyProblem) -> None:
        slowest_ns = max([_until_there_ns(option) for a in problem.applications for option in a.options], default=0)
        self._problem = problem
        self._loads_ns = _LOADS * slowest_ns
        self._free_bytes = problem.memory_bytes - problem.held_bytes
        is_short = sum([application.floor.bytes for application in problem.applications]) > problem.memory_bytes
        self._cold_points = _COLD_POINTS_SHORT if is_short else COLD_POINTS

    def of(self, application: ApplicationState) -> "Prospect":
        problem = self._problem
        spread_ns = _WIDER * problem.spread_ns_of(application) or 1
        patience_ns = (self._loads_ns + _SPREADS * spread_ns) or 1
        first_ns = application.next_request_ns
        predicted_ns = () if first_ns is None else (first_ns, *application.later_requests_ns)
        arrivals = Arrivals(
            problem.now_ns,
            predicted_ns,
            problem.rate_rps_of(application),
            spread_ns,
            patience_ns,
            application.prediction_hit_rate,
        )
        floor = application.floor
        cold_points = _COLD_POINTS_WAKING if floor.sleeps else self._cold_points
        return Prospect(application, floor, arrivals, self._free_bytes, cold_points)


class Arrivals:
    """When an application's requests come, as a distribution each; one that comes after s counts e^(-s /
    `patience_ns`).

    Where not every prediction is true, each counts as much as it is likely to be, and the longer it is overdue the less
    likely: a true one would have been answered. Requests that nobody predicted come at the rate.
    """

    __slots__ = ("_ahead_ns", "_falling", "_hit_rate", "_patience_ns", "_rate", "unpredicted")

    def __init__(
        self,
        now_ns: int,
        predicted_ns: Sequence[int],
        rate_rps: float | None,
        spread_ns: float,
        patience_ns: float,
        hit_rate: float | None = None,
    ) -> None:
        """Without predictions, one: at the rate, or hardly ever."""
        self._patience_ns = patience_ns
        by_rate = (rate_rps or 0.0) * 1e-9 + _LEAST_RATE
        self._hit_rate = 1.0
        self.unpredicted = 0.0
        if predicted_ns:
            self._rate = 1 / spread_ns
            self._ahead_ns = [at_ns - now_ns for at_ns in predicted_ns]
            if hit_rate is not None:
                self._hit_rate = hit_rate
                self.unpredicted = (1 - hit_rate) * by_rate * patience_ns
        else:
            self._rate = by_rate
            self._ahead_ns = [0]
        self._falling = self._rate + 1 / patience_ns

    def ever(self) -> float:
        """`within` without an end, in a third of the time: every decision asks for it of everybody."""
        rate, falling, patience_ns, hit_rate = self._rate, self._falling, self._patience_ns, self._hit_rate
        expected = self.unpredicted
        for ahead_ns in self._ahead_ns:
            if ahead_ns <= 0:
                found = rate / falling
                expected += found if hit_rate == 1 else found * _still_true(hit_rate, 0.5 * exp(ahead_ns * rate))
                continue
            at_first, counts = exp(-ahead_ns * rate), exp(-ahead_ns / patience_ns)
            rising = 2 * rate - falling
            if abs(rising * ahead_ns) < _NEARLY_LEVEL:
                found = at_first * ahead_ns
            else:
                found = (counts - at_first) / rising
            found = (found + counts / falling) * 0.5 * rate / (1 - 0.5 * at_first)
            if hit_rate != 1:
                found *= _still_true(hit_rate, 1 - 0.5 * at_first)
            least = _LEAST_RATE * patience_ns
            expected += found if found > least else least
        return expected

    def within(self, ns: float) -> float:
        """How many are expected within `ns`, as what a load of `ns` costs."""
        rate, falling, hit_rate = self._rate, self._falling, self._hit_rate
        least = _LEAST_RATE * (self._patience_ns if ns > self._patience_ns else ns)
        expected = self.unpredicted * (1 - exp(-ns / self._patience_ns)) / _STEADY if self.unpredicted else 0.0
        for ahead_ns in self._ahead_ns:
            if ahead_ns <= 0:
                found = rate / falling * (1 - exp(-falling * ns))
                expected += found if hit_rate == 1 else found * _still_true(hit_rate, 0.5 * exp(ahead_ns * rate))
                continue
            until_ns = ahead_ns if ns > ahead_ns else ns
            if (ahead_ns - until_ns) * rate > _FAR:
                expected += least
                continue
            # It has not come yet. Up to the predicted time the density rises as e^(s · rate), and falls likewise from
            # there on.
            at_first = exp(-ahead_ns * rate)
            rising = 2 * rate - falling
            if abs(rising * until_ns) < _NEARLY_LEVEL:
                found = at_first * until_ns
            else:
                found = (exp(rising * until_ns - ahead_ns * rate) - at_first) / rising
            if ns > ahead_ns:
                found += exp(-ahead_ns / self._patience_ns) * (1 - exp(-falling * (ns - ahead_ns))) / falling
            found *= 0.5 * rate / (1 - 0.5 * at_first)
            if hit_rate != 1:
                found *= _still_true(hit_rate, 1 - 0.5 * at_first)
            expected += found if found > least else least
        return expected


def _still_true(hit_rate: float, silent: float) -> float:
    """P(a prediction is true | no request for it so far), where a true one has none until now with probability
    `silent`.
    """
    true = hit_rate * silent
    return true / (true + 1 - hit_rate)


def _until_there_ns(option: Option) -> int:
    return option.load_ns + _LOOK_NS if option.sleeps else option.load_ns


class Prospect:
    """What each variant is worth to one application: points of accuracy × requests × weight."""

    __slots__ = ("_arrivals", "_cold_points", "_expected", "_free_bytes", "application", "floor", "loaded")

    def __init__(
        self,
        application: ApplicationState,
        floor: Option,
        arrivals: Arrivals,
        free_bytes: int,
        cold_points: float,
    ) -> None:
        """`free_bytes` of memory that a variant could be loaded into beside the present one."""
        self.application = application
        self.loaded = application.loaded
        self.floor = floor
        self._arrivals = arrivals
        self._free_bytes = free_bytes
        self._cold_points = cold_points
        self._expected = arrivals.ever()

    def worth(self, option: Option | None, beside: bool | None = None) -> float:
        """Of `option`, or of nothing, in the place of what is there now; of that itself where it is the same.

        `beside`: what is there answers until `option` has come; None = where there is room for both now.
        """
        weight = self.application.weight
        if option is None:
            unpredicted = self._arrivals.unpredicted
            cold = self._cold_points * (self._expected - unpredicted) + _COLD_POINTS_UNPREDICTED * unpredicted
            return -cold * weight
        if option is self.loaded:
            return self.worth_there(option)
        before = self._arrivals.within(_WAITS * _until_there_ns(option))
        after = (option.accuracy - self.floor.accuracy) * max(0.0, self._expected - before)
        if beside is None:
            beside = option.peak_bytes <= self._free_bytes
        if beside and self.loaded is not None:
            return (after + (self.loaded.accuracy - self.floor.accuracy) * before) * weight
        return (after - self._cold_points * min(before, self._expected)) * weight

    def worth_there(self, option: Option) -> float:
        """Of `option` from the moment at which it is there."""
        return (option.accuracy - self.floor.accuracy) * self._expected * self.application.weight
