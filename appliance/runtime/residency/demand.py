"""When each group is expected to be asked: windows, their width, and who comes unasked-for beside whom (Edge-MultiAI
§III-B).

A group is *maximalist* in [t - Δ - θ, t + Δ] around a predicted request at t, θ = the load time of its best variant,
and *minimalist* outside (EM-06, EM-09).
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

from appliance.clock import NS_PER_S
from appliance.policies.forecast.base import Forecaster
from appliance.policies.forecast.companions import Companions
from appliance.policies.forecast.residuals import HitRates, Interarrivals, Residuals, hit_chance
from appliance.policies.residency.base import Rate
from appliance.runtime.residency.edges import WindowEdges
from appliance.runtime.residency.groups import VariantGroup

HISTORY = 512
"""Arrivals kept of each group: enough to choose and train a forecaster on."""
_RATE_OVER = 16
_REACH_GAPS = 5
"""A request that is later than this many mean gaps is not expected for its old time any more."""


@dataclass(slots=True)
class Expectation:
    """What is known of a group's requests. `window_ns` is the predicted time that its open window is around."""

    name: str
    forecaster: Forecaster
    arrivals_ns: deque[int] = field(default_factory=lambda: deque(maxlen=HISTORY))
    predicted_ns: int | None = None
    due_ns: int | None = None
    """What was predicted at the last arrival: overdue once that time has passed, however often the prediction was
    made anew since.
    """
    later_ns: tuple[int, ...] = ()
    """When requests after that are predicted, where the forecaster knows."""
    missed_ns: int | None = None
    """The prediction before `predicted_ns`, if its window closed without a request: who is late may still have been
    meant by it.
    """
    window_ns: int | None = None
    is_answered: bool = False
    """A request has come since the open window was opened."""
    unexpected: set[str] = field(default_factory=set)
    """Groups that came outside their own windows while this one's was open."""

    @property
    def is_maximalist(self) -> bool:
        return self.window_ns is not None

    @property
    def next_ns(self) -> int | None:
        """The time that the policies shall see: that of the open window, else when the next request is due, or was."""
        if self.window_ns is not None:
            return self.window_ns
        return self.predicted_ns if self.due_ns is None else self.due_ns

    @property
    def rate(self) -> Rate | None:
        """Over the last arrivals and the silence since; None before the second."""
        count = min(_RATE_OVER, len(self.arrivals_ns))
        return None if count < 2 else Rate(count, self.arrivals_ns[-count])

    def meant_ns(self, at_ns: int) -> int | None:
        """The prediction that a request at `at_ns` answers.

        Not that of the open window: once answered, it says nothing of the next request.
        """
        missed_ns, predicted_ns = self.missed_ns, self.predicted_ns
        if missed_ns is None or predicted_ns is None:
            return predicted_ns if missed_ns is None else missed_ns
        return missed_ns if abs(at_ns - missed_ns) <= abs(at_ns - predicted_ns) else predicted_ns

    def predict(self, now_ns: int, reach_ns: int = 0) -> None:
        """Ask the forecaster anew.

        A request that is at most `reach_ns` late stays due for when it was, and nothing is once the forecast has ended.
        """
        prediction = self.forecaster.predict(tuple(self.arrivals_ns)[-64:], now_ns)
        self.predicted_ns, self.later_ns = (prediction.next_ns, prediction.later_ns) if prediction else (None, ())
        if prediction is None or self.due_ns is None or now_ns - self.due_ns > reach_ns:
            self.due_ns = self.predicted_ns
        if prediction is None:
            self.missed_ns = None  # who comes after that answers no prediction


class Expectations:
    """All of them, with Δ and H over all groups (EM-07, EM-16) and P(r | active) (EM-19)."""

    def __init__(
        self,
        forecaster_of: Callable[[str], Forecaster],
        *,
        alpha: float,
        delta_ns: int,
        history_ns: int,
        delta_share_max: float = inf,
    ) -> None:
        """`delta_ns` and `history_ns` hold until something was seen.

        Δ is `delta_share_max` × H at most; the paper has no such limit.
        """
        self._forecaster_of = forecaster_of
        self._alpha = alpha
        self._delta_share_max = delta_share_max
        self._residuals = Residuals(delta_ns)
        """Against what was predicted at the request before (EM-07)."""
        self._spreads = Residuals(delta_ns)
        """Against what was predicted last, or before that: predictions that are made anew say less."""
        self._hit_rates = HitRates()
        self._interarrivals = Interarrivals(history_ns)
        self._companions = Companions()
        self._all: dict[str, Expectation] = {}
        self._changed: set[str] = set()
        self._open: dict[str, Expectation] = {}
        """Those whose windows are open."""
        self.moved: set[str] = set()
        """Groups of which something else is known since somebody looked here, who empties it."""
        self._edges = WindowEdges()
        self.delta_ns = delta_ns
        self.history_ns = history_ns

    def of(self, name: str) -> Expectation:
        expectation = self._all.get(name)
        if expectation is None:
            expectation = self._all[name] = Expectation(name, self._forecaster_of(name))
            expectation.predict(0)
            self._changed.add(name)
            self.moved.add(name)
        return expectation

    def all(self) -> list[Expectation]:
        return list(self._all.values())

    def forget(self, name: str) -> None:
        """The group is gone."""
        if self._all.pop(name, None) is not None:
            self._changed.discard(name)
            self._open.pop(name, None)
            self._edges.forget(name)
            self._residuals.forget(name)
            self._spreads.forget(name)
            self._hit_rates.forget(name)
            self._interarrivals.forget(name)
            self._companions.forget(name)

    def arrived(self, name: str, at_ns: int) -> None:
        """A request came."""
        expectation = self.of(name)
        due_ns, meant_ns = expectation.due_ns, expectation.meant_ns(at_ns)
        expectation.missed_ns = None
        if expectation.arrivals_ns:
            rate = expectation.rate
            self._note_hit(expectation, at_ns, rate)
            reach_ns = self._reach_ns(at_ns, rate)
            if due_ns is not None and abs(at_ns - due_ns) <= reach_ns:
                self._residuals.add(name, due_ns, at_ns)
            if meant_ns is not None and abs(at_ns - meant_ns) <= reach_ns:
                self._spreads.add(name, meant_ns, at_ns)
        self._interarrivals.add(name, at_ns)
        self.history_ns = self._interarrivals.mean_ns()
        self.delta_ns = int(min(self._residuals.delta_ns(self._alpha), self._delta_share_max * self.history_ns))
        expectation.arrivals_ns.append(at_ns)
        expectation.due_ns = None
        expectation.is_answered = True
        expectation.predict(at_ns)
        self._changed.add(name)
        self.moved.add(name)
        if not expectation.is_maximalist:
            for other in self._open.values():
                other.unexpected.add(name)

    @property
    def spread_ns(self) -> int:
        """How far off predictions are in the mean, of all groups."""
        return self._spreads.mean_ns()

    def own_spread_ns(self, name: str) -> int | None:
        """The same of one group; None while too little is known of it."""
        return self._spreads.own_ns(name)

    def hit_rate(self, name: str) -> float:
        """The share of a group's predictions that are true."""
        return self._hit_rates.of(name)

    def _reach_ns(self, at_ns: int, rate: Rate | None) -> float:
        """How far apart a request and a prediction may be to have to do with one another: a forecast that has ended
        says never.
        """
        own_gap_ns = 0.0 if rate is None else NS_PER_S / rate.rps(at_ns)
        return _REACH_GAPS * max(self.history_ns, own_gap_ns)

    def _note_hit(self, expectation: Expectation, at_ns: int, rate: Rate | None) -> None:
        """Whether a request came for what was predicted at the last one, before it is known as an arrival."""
        since_ns = expectation.arrivals_ns[-1]
        if expectation.due_ns is None or rate is None or at_ns <= since_ns:
            return
        hit_rate, spread_ns = self._hit_rates.share(expectation.name), self._spread_ns_of(expectation.name)
        chance = hit_chance(hit_rate, since_ns, expectation.due_ns, at_ns, spread_ns, rate.rps(since_ns) / NS_PER_S)
        self._hit_rates.add(expectation.name, chance)

    def _spread_ns_of(self, name: str) -> int:
        own_ns = self.own_spread_ns(name)
        return self.spread_ns if own_ns is None else own_ns

    def beside(self, active: str) -> Mapping[str, float]:
        """P(r_name | active) by name, as it is known now."""
        return self._companions.beside(active)

    def look_again(self, name: str) -> None:
        """What a group's windows follow from has changed: its loads take another time than was known."""
        self._changed.add(name)

    def due(self, now_ns: int, lead_ns: int) -> set[str]:
        """Groups for which there is something to `step`: changed since they were, or the edge of a window has come."""
        changed, self._changed = self._changed, set()
        return changed | self._edges.due(now_ns, self.delta_ns, lead_ns)

    def step(
        self, expectation: Expectation, load_ns: int, now_ns: int, lead_ns: int = 0, ahead_ns: int | None = None
    ) -> bool:
        """Move a group between the sets as the time demands; whether it moved.

        `load_ns`: θ of the group; `lead_ns`: what is the same for all and comes before a load; `ahead_ns`: it is due
        once more so long before its request, though its window opens later.
        """
        moved = self._step(expectation, load_ns + lead_ns, now_ns)
        self.moved.add(expectation.name)
        if expectation.window_ns is None:
            self._open.pop(expectation.name, None)
        else:
            self._open[expectation.name] = expectation
        if ahead_ns is None or self.is_coming(expectation, now_ns, lead_ns + ahead_ns):
            ahead_ns = load_ns
        self._edges.put(expectation.name, expectation.window_ns, expectation.predicted_ns, ahead_ns)
        return moved

    def is_coming(self, expectation: Expectation, now_ns: int, before_ns: int) -> bool:
        """Whether a request is predicted, at most `before_ns` and Δ away."""
        predicted_ns = expectation.predicted_ns
        return predicted_ns is not None and predicted_ns - self.delta_ns - before_ns <= now_ns

    def next_edge_ns(self, lead_ns: int = 0) -> int | None:
        """When `step` has something to do again, of those that were stepped."""
        return self._edges.next_ns(self.delta_ns, lead_ns)

    def _step(self, expectation: Expectation, load_ns: int, now_ns: int) -> bool:
        delta_ns, window_ns = self.delta_ns, expectation.window_ns
        was = window_ns is not None
        if window_ns is not None and now_ns > window_ns + delta_ns:
            self._companions.observe(expectation.name, expectation.unexpected)
            expectation.unexpected = set()
            expectation.window_ns = window_ns = None
        if window_ns is None:
            predicted_ns = expectation.predicted_ns
            if predicted_ns is not None and now_ns > predicted_ns + delta_ns:
                expectation.missed_ns = predicted_ns
                expectation.predict(now_ns, _REACH_GAPS * self.history_ns)
                predicted_ns = expectation.predicted_ns
            if predicted_ns is not None and predicted_ns - delta_ns - load_ns <= now_ns:
                expectation.window_ns = window_ns = predicted_ns
                expectation.is_answered = False
        return was is (window_ns is None)


def window_load_ns(group: VariantGroup) -> int:
    """θ of a group: the load time of its most accurate variant (EM-06, EM-08)."""
    return group.options[0].load_ns
