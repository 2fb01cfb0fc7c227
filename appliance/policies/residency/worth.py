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

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from math import exp

import numpy as np
from numpy.typing import NDArray

from appliance.policies.residency.base import ApplicationState, Option, ResidencyProblem
from appliance.policies.residency.figures import NEVER, Table

Floats = NDArray[np.float64]
Worth = tuple[ApplicationState, float, list[float]]
"""An application, what having nothing is worth to it, and each of its choices."""

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
FEW = 48
"""Applications up to which they are looked at one by one: columns have to be made first."""
_NEARLY_LEVEL = 1e-4
"""Where a density rises by less than this it is taken for level: the exact formula would lose its digits."""


class Outlook:
    """The applications of one problem, with how far a decision looks ahead."""

    def __init__(self, problem: ResidencyProblem) -> None:
        rungs = [application.rungs for application in problem.applications]
        load_ns = max([each.slowest_ns[0] for each in rungs], default=-1)
        wake_ns = max([each.slowest_ns[1] for each in rungs], default=-1)
        slowest_ns = max(0, load_ns, wake_ns + _LOOK_NS if wake_ns >= 0 else 0)
        self._problem = problem
        self._loads_ns = _LOADS * slowest_ns
        self._free_bytes = problem.memory_bytes - problem.held_bytes
        is_short = sum([each.floor.bytes for each in rungs]) > problem.memory_bytes
        self._cold_points = _COLD_POINTS_SHORT if is_short else COLD_POINTS

    def of(self, application: ApplicationState) -> "Prospect":
        """What one application's variants are worth."""
        problem, loaded = self._problem, application.loaded
        spread_ns = _WIDER * problem.spread_ns_of(application) or 1
        first_ns = application.next_request_ns
        arrivals = Single(
            problem.now_ns,
            () if first_ns is None else (first_ns, *application.later_requests_ns),
            problem.rate_rps_of(application),
            spread_ns,
            (self._loads_ns + _SPREADS * spread_ns) or 1,
            application.prediction_hit_rate,
        )
        return Prospect(
            application,
            arrivals.ever(),
            arrivals.unpredicted,
            {o.name: arrivals.within(_WAITS * _until_there_ns(o)) for o in application.choices if o is not loaded},
            self._free_bytes,
            _COLD_POINTS_WAKING if application.floor.sleeps else self._cold_points,
        )

    def worths(self, applications: Sequence[ApplicationState]) -> list["Worth"]:
        """Of several: what nothing is worth to each, and each of its choices."""
        if len(applications) <= FEW:
            prospects = map(self.of, applications)
            return [(one.application, one.worth(None), [*map(one.worth, one.application.choices)]) for one in prospects]
        weighed = self.weigh(applications)
        options = iter(weighed.options().tolist())
        nothing = zip(applications, weighed.nothing.tolist(), strict=True)
        return [(one, none, [*islice(options, len(one.choices))]) for one, none in nothing]

    def weigh(self, applications: Sequence[ApplicationState]) -> "Weighed":
        """What those of many are worth, all at once."""
        table = Table([application.figures for application in applications])
        cold_points = np.where(table.rows["floor_sleeps"] == 1, _COLD_POINTS_WAKING, self._cold_points)
        return Weighed(applications, table, *self._at_once(table), self._free_bytes, cold_points)

    def _at_once(self, table: Table) -> tuple[Floats, Floats, Floats]:
        """Requests expected and unpredicted of each application, and before each of its choices has come."""
        problem = self._problem
        rows, now_ns = table.rows, problem.now_ns
        of_all_ns = problem.delta_ns if problem.spread_ns is None else problem.spread_ns
        spread_ns = _WIDER * np.where(rows["spread_ns"] < 0, of_all_ns, rows["spread_ns"])
        spread_ns[spread_ns == 0] = 1
        patience_ns = self._loads_ns + _SPREADS * spread_ns
        patience_ns[patience_ns == 0] = 1
        rate_rps = rows["requests"] * 1e9 / np.maximum(1, now_ns - rows["since_ns"])
        is_known = table.moments_ns != NEVER
        ahead_ns = np.where(is_known, table.moments_ns - now_ns, 0).astype(float)
        arrivals = Arrivals(
            ahead_ns,
            table.of_moment,
            np.where(rows["next_ns"] == NEVER, 0.0, 1 / spread_ns),
            rate_rps,
            patience_ns,
            rows["hit_rate"],
        )
        until_ns = table.options["load_ns"] + np.where(table.options["sleeps"] == 1, _LOOK_NS, 0)
        return arrivals.ever(), arrivals.unpredicted, arrivals.within(table.of_option, _WAITS * until_ns)


def _until_there_ns(option: Option) -> int:
    return option.load_ns + _LOOK_NS if option.sleeps else option.load_ns


class Arrivals:
    """When the requests of several applications come, as a distribution each; one that comes after s counts e^(-s /
    `patience_ns`).

    Where not every prediction is true, each counts as much as it is likely to be, and the longer it is overdue the less
    likely: a true one would have been answered. Requests that nobody predicted come at the rate.
    """

    def __init__(
        self,
        ahead_ns: Floats,
        owner: NDArray[np.intp],
        sharpness: Floats,
        rate_rps: Floats,
        patience_ns: Floats,
        hit_rate: Floats,
    ) -> None:
        """`ahead_ns`: of each prediction, and whose it is (`owner`, ascending); of the others, by application.

        `sharpness`: of its predictions, 1 / the mean residual; 0 where it has none: then one request comes at the rate,
        or hardly ever, and there is one entry of 0 in `ahead_ns`. `hit_rate`: not a number where all are true.
        """
        by_rate = rate_rps * 1e-9 + _LEAST_RATE
        is_predicted = sharpness > 0
        self._patience_ns = patience_ns
        self._ahead_ns = ahead_ns
        self._owner = owner
        self._rate = np.where(is_predicted, sharpness, by_rate)
        self._hit_rate = np.where(is_predicted & ~np.isnan(hit_rate), hit_rate, 1.0)
        self.unpredicted: Floats = (1 - self._hit_rate) * by_rate * patience_ns
        self._falling = self._rate + 1 / patience_ns
        self._counts = np.bincount(owner, minlength=len(patience_ns))
        self._firsts = np.cumsum(self._counts) - self._counts

    def ever(self) -> Floats:
        """`within` without an end, of each application."""
        owner = self._owner
        expected = self.unpredicted.copy()
        np.add.at(expected, owner, self._of_each(self._ahead_ns, owner, None))
        return expected

    def within(self, places: NDArray[np.intp], ns: Floats) -> Floats:
        """How many of application `places[i]` are expected within `ns[i]`, as what a load of `ns` costs."""
        counts = self._counts[places]
        pairs = np.repeat(np.arange(len(places)), counts)
        moments = np.arange(len(pairs)) + np.repeat(self._firsts[places] - (np.cumsum(counts) - counts), counts)
        unpredicted = self.unpredicted[places]
        expected = np.zeros(len(places))
        some = np.flatnonzero(unpredicted)
        if len(some):
            expected[some] = unpredicted[some] * (1 - _exp(-ns[some] / self._patience_ns[places[some]])) / _STEADY
        np.add.at(expected, pairs, self._of_each(self._ahead_ns[moments], places[pairs], ns[pairs]))
        return expected

    def _of_each(self, ahead_ns: Floats, owner: NDArray[np.intp], ns: Floats | None) -> Floats:
        """How many requests are expected for each prediction, within `ns`, or ever."""
        found = np.empty(len(ahead_ns))
        is_due = ahead_ns <= 0
        for part, of_part in ((is_due, self._due), (~is_due, self._coming)):
            places = np.flatnonzero(part)
            if len(places):
                found[places] = of_part(ahead_ns[places], owner[places], None if ns is None else ns[places])
        return found

    def _due(self, ahead_ns: Floats, owner: NDArray[np.intp], ns: Floats | None) -> Floats:
        """For predictions whose time has come."""
        rate, falling = self._rate[owner], self._falling[owner]
        found = rate / falling
        if ns is not None:
            found *= 1 - _exp(-falling * ns)
        return self._if_true(found, owner, lambda some: 0.5 * _exp(ahead_ns[some] * rate[some]))

    def _coming(self, ahead_ns: Floats, owner: NDArray[np.intp], ns: Floats | None) -> Floats:
        """For the others: up to the predicted time the density rises as e^(s · rate), and falls likewise from there
        on.
        """
        rate, falling, patience_ns = self._rate[owner], self._falling[owner], self._patience_ns[owner]
        until_ns = ahead_ns if ns is None else np.minimum(ns, ahead_ns)
        at_first = _exp(-ahead_ns * rate)
        rising = 2 * rate - falling
        level = np.abs(rising * until_ns) < _NEARLY_LEVEL
        if ns is None:
            counts = _exp(-ahead_ns / patience_ns)
            found = np.where(level, at_first * ahead_ns, (counts - at_first) / np.where(level, 1.0, rising))
            found = (found + counts / falling) * 0.5 * rate / (1 - 0.5 * at_first)
            least = _LEAST_RATE * patience_ns
        else:
            found = np.where(
                level,
                at_first * until_ns,
                (_exp(rising * until_ns - ahead_ns * rate) - at_first) / np.where(level, 1.0, rising),
            )
            after = np.flatnonzero(ns > ahead_ns)
            if len(after):
                falls = falling[after]
                rest = 1 - _exp(-falls * (ns[after] - ahead_ns[after]))
                found[after] += _exp(-ahead_ns[after] / patience_ns[after]) * rest / falls
            found *= 0.5 * rate / (1 - 0.5 * at_first)
            least = _LEAST_RATE * np.minimum(ns, patience_ns)
        found = self._if_true(found, owner, lambda some: 1 - 0.5 * at_first[some])
        if ns is not None:
            found[(ahead_ns - until_ns) * rate > _FAR] = 0.0
        return np.maximum(found, least)

    def _if_true(self, found: Floats, owner: NDArray[np.intp], silent: Callable[[NDArray[np.intp]], Floats]) -> Floats:
        """As many as that where the prediction is true; a true one has none until now with probability `silent`."""
        hit_rate = self._hit_rate[owner]
        some = np.flatnonzero(hit_rate != 1)
        if len(some):
            true = hit_rate[some] * silent(some)
            found[some] *= true / (true + 1 - hit_rate[some])
        return found


class Single:
    """`Arrivals` of one application, as plain numbers: quicker where there are few.

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
        """`within` without an end."""
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


def _exp(values: Floats) -> Floats:
    """The same to the last digit on every machine, which numpy's own is not: a decision must not depend on that."""
    return np.fromiter(map(exp, values.tolist()), float, len(values))


class Weighed:
    """Several applications, and what each of their options is worth: points of accuracy × requests × weight."""

    def __init__(
        self,
        applications: Sequence[ApplicationState],
        table: Table,
        expected: Floats,
        unpredicted: Floats,
        before: Floats,
        free_bytes: int,
        cold_points: Floats,
    ) -> None:
        """`before`: requests expected before each option has come; the others of each application. `free_bytes` of
        memory that a variant could be loaded into beside the present one.
        """
        self.applications = applications
        self.table = table
        self._free_bytes = free_bytes
        self._cold_points = cold_points
        self._expected = expected
        self._unpredicted = unpredicted
        self._before = before
        self._firsts = np.cumsum(table.rows["options"]) - table.rows["options"]

    @property
    def there(self) -> Floats:
        """Of what each application has, as long as it is there; meaningless for those that have nothing."""
        rows = self.table.rows
        there: Floats = (rows["loaded_accuracy"] - rows["floor_accuracy"]) * self._expected * rows["weight"]
        return there

    @property
    def nothing(self) -> Floats:
        """Of having nothing, of each application."""
        unpredicted = self._unpredicted
        cold = self._cold_points * (self._expected - unpredicted) + _COLD_POINTS_UNPREDICTED * unpredicted
        nothing: Floats = -cold * self.table.rows["weight"]
        return nothing

    def options(self, beside: bool | None = None) -> Floats:
        """Of each option in the place of what is there now; of that itself where it is the same.

        `beside`: what is there answers until the option has come; None = where there is room for both now.
        """
        options, rows, owner, before = self.table.options, self.table.rows, self.table.of_option, self._before
        expected, floor_accuracy = self._expected[owner], rows["floor_accuracy"][owner]
        gain = options["accuracy"] - floor_accuracy
        after = gain * np.maximum(0.0, expected - before)
        fits = options["peak_bytes"] <= self._free_bytes if beside is None else beside
        meanwhile = (rows["loaded_accuracy"][owner] - floor_accuracy) * before
        cold = self._cold_points[owner] * np.minimum(before, expected)
        worth = np.where(fits & (rows["loaded_bytes"] >= 0)[owner], after + meanwhile, after - cold)
        worth = np.where(options["is_loaded"] == 1, gain * expected, worth)
        weighted: Floats = worth * rows["weight"][owner]
        return weighted

    def prospect(self, place: int) -> "Prospect":
        """The same of one of them, for a closer look."""
        application, first = self.applications[place], self._firsts[place]
        before = self._before[first : first + len(application.choices)].tolist()
        return Prospect(
            application,
            float(self._expected[place]),
            float(self._unpredicted[place]),
            dict(zip([option.name for option in application.choices], before, strict=True)),
            self._free_bytes,
            float(self._cold_points[place]),
        )


class Prospect:
    """What each variant is worth to one application: points of accuracy × requests × weight."""

    __slots__ = (
        "_before",
        "_cold_points",
        "_expected",
        "_free_bytes",
        "_unpredicted",
        "application",
        "floor",
        "loaded",
    )

    def __init__(
        self,
        application: ApplicationState,
        expected: float,
        unpredicted: float,
        before: Mapping[str, float],
        free_bytes: int,
        cold_points: float,
    ) -> None:
        """`before`: requests that are expected before a variant has come; of those that are not there."""
        self.application = application
        self.loaded = application.loaded
        self.floor = application.floor
        self._expected = expected
        self._unpredicted = unpredicted
        self._before = before
        self._free_bytes = free_bytes
        self._cold_points = cold_points

    def worth(self, option: Option | None, beside: bool | None = None) -> float:
        """Of `option`, or of nothing, in the place of what is there now; of that itself where it is the same.

        `beside`: what is there answers until `option` has come; None = where there is room for both now.
        """
        weight = self.application.weight
        if option is None:
            unpredicted = self._unpredicted
            cold = self._cold_points * (self._expected - unpredicted) + _COLD_POINTS_UNPREDICTED * unpredicted
            return -cold * weight
        if option is self.loaded:
            return self.worth_there(option)
        before = self._before[option.name]
        after = (option.accuracy - self.floor.accuracy) * max(0.0, self._expected - before)
        if beside is None:
            beside = option.peak_bytes <= self._free_bytes
        if beside and self.loaded is not None:
            return (after + (self.loaded.accuracy - self.floor.accuracy) * before) * weight
        return (after - self._cold_points * min(before, self._expected)) * weight

    def worth_there(self, option: Option) -> float:
        """Of `option` from the moment at which it is there."""
        return (option.accuracy - self.floor.accuracy) * self._expected * self.application.weight
