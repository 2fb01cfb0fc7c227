"""Windows around predicted requests, and what is learnt from those that came (Edge-MultiAI §III-B)."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from appliance.policies.forecast.base import Prediction
from appliance.policies.forecast.ewma import Ewma
from appliance.runtime.residency.demand import Expectations

S = 10**9


@dataclass(frozen=True)
class At:
    """Predicts the given times, whatever came."""

    times_ns: tuple[int, ...]
    name: str = "at"

    def predict(self, arrivals_ns: Sequence[int], now_ns: int) -> Prediction | None:
        later = [t for t in self.times_ns if t > now_ns]
        return Prediction(later[0], 0) if later else None


def expecting(**times_s: float) -> Expectations:
    made = Expectations(lambda name: At((int(times_s[name] * S),)), alpha=1.0, delta_ns=50 * S, history_ns=10 * S)
    for name in times_s:
        made.of(name)
    return made


def test_request_window_opens_and_closes_as_in_paper_example() -> None:
    """Predicted at 1000, Δ 50, θ 30: maximalist from 920 to 1050, minimalist before and after (EM-06, EM-09)."""
    all_ = expecting(a=1000)
    one = all_.of("a")
    assert not all_.step(one, 30 * S, 919 * S)
    assert all_.next_edge_ns() == 920 * S
    assert not one.is_maximalist
    assert all_.step(one, 30 * S, 920 * S)
    assert one.is_maximalist
    assert all_.next_edge_ns() == 1050 * S + 1
    assert not all_.step(one, 30 * S, 1050 * S)
    assert one.is_maximalist
    assert all_.step(one, 30 * S, 1050 * S + 1)
    assert not one.is_maximalist


def test_request_window_stays_open_after_request_came() -> None:
    """A request inside its window does not close it: the variant is kept until t + Δ."""
    all_ = expecting(a=1000)
    one = all_.of("a")
    all_.step(one, 0, 960 * S)
    all_.arrived("a", 1001 * S)
    all_.step(one, 0, 1010 * S)
    assert one.is_maximalist
    assert one.next_ns == 1000 * S


def test_companion_probability_grows_with_requests_in_window() -> None:
    """b comes in every window of a: P(b | a) grows, P(c | a) does not (EM-19)."""
    all_ = Expectations(
        lambda name: At(tuple(range(100 * S, 3000 * S, 100 * S)) if name == "a" else ()),
        alpha=1.0,
        delta_ns=5 * S,
        history_ns=10 * S,
    )
    for name in "abc":
        all_.of(name)
    before = all_.beside("a")["b"]
    for start in range(100, 2000, 100):
        all_.step(all_.of("a"), 0, start * S)
        all_.arrived("b", start * S + 1)
        all_.step(all_.of("a"), 0, (start + 6) * S)
        all_.of("a").predict((start + 6) * S)
    assert all_.beside("a")["b"] > 2 * before
    assert all_.beside("a")["c"] <= before


def test_window_delta_follows_error_of_predictions() -> None:
    """Requests 3 s off their prediction, always: Δ is 3 s and no longer the initial one (EM-07)."""
    all_ = Expectations(lambda name: At(tuple(range(0, 3000 * S, 100 * S))), alpha=1.0, delta_ns=50 * S, history_ns=S)
    for start in range(100, 1000, 100):
        all_.arrived("a", start * S + 3 * S)
    assert all_.delta_ns == 3 * S
    assert all_.history_ns == 100 * S


def test_window_delta_stays_within_share_of_mean_gap() -> None:
    """Residuals of 3 s with a request each 10 s: Δ is a tenth of that, and the error of predictions is still known."""
    all_ = Expectations(
        lambda name: At(tuple(range(0, 300 * S, 10 * S))), alpha=1.0, delta_ns=S, history_ns=S, delta_share_max=0.1
    )
    for start in range(10, 200, 10):
        all_.arrived("a", (start + 3) * S)
    assert all_.delta_ns == S
    assert all_.spread_ns == 3 * S


def test_late_request_stays_due_at_predicted_time() -> None:
    """Policies see the time that has passed, not the newly predicted one, until five mean gaps have
    passed since then.
    """
    all_ = Expectations(lambda name: At((10 * S, 40 * S, 90 * S)), alpha=1.0, delta_ns=S, history_ns=4 * S)
    one = all_.of("a")
    assert all_.step(one, 0, 9 * S)
    assert all_.step(one, 0, 12 * S)
    assert (one.is_maximalist, one.next_ns, one.predicted_ns) == (False, 10 * S, 40 * S)
    all_.step(one, 0, 39 * S)
    all_.step(one, 0, 42 * S)
    assert one.next_ns == 90 * S


def test_prediction_error_counts_against_first_prediction() -> None:
    """Predicted at 4.35 s, again and again while no request came, and asked at 7.00 s: 2.65 s off (EM-07)."""
    anew = tuple(int(s * S) for s in (4.35, 4.9, 5.6, 6.553, 9))
    all_ = Expectations(lambda name: At(anew), alpha=0.0, delta_ns=S // 10, history_ns=4 * S)
    all_.arrived("a", 0)
    one = all_.of("a")
    all_.step(one, 0, 0)
    while (edge_ns := all_.next_edge_ns()) is not None and edge_ns < 7 * S:
        all_.step(one, 0, edge_ns)
    all_.arrived("a", 7 * S)
    assert all_.delta_ns == int(2.65 * S)


def test_application_without_requests_has_few_windows_and_then_none() -> None:
    """Asked twice, 50 ms apart: a window for each doubling of its lateness, none once the forecast has ended, and
    nothing is due then.
    """
    all_ = Expectations(lambda name: Ewma(), alpha=1.0, delta_ns=S // 100, history_ns=S, delta_share_max=0.01)
    all_.arrived("a", S)
    all_.arrived("a", S + S // 20)
    one = all_.of("a")
    opened, now_ns, edges = 0, S + S // 20, 0
    all_.step(one, 0, now_ns)
    while (edge_ns := all_.next_edge_ns()) is not None and edges < 1000:
        now_ns, edges = max(now_ns + 1, edge_ns), edges + 1
        opened += all_.step(one, 0, now_ns) and one.is_maximalist
    assert 1 <= opened <= 12
    assert now_ns < 2 * S
    assert not all_.step(one, 0, 3600 * S)
    assert (one.is_maximalist, one.next_ns) == (False, None)


def test_request_after_ended_forecast_counts_as_no_prediction_error() -> None:
    """An hour of silence is no error of a forecast that had ended; it starts anew with the request."""
    all_ = Expectations(lambda name: Ewma(), alpha=1.0, delta_ns=S, history_ns=S)
    for at_s in (1, 2, 3):
        all_.arrived("a", at_s * S)
    one = all_.of("a")
    all_.step(one, 0, 3 * S)
    while (edge_ns := all_.next_edge_ns()) is not None and edge_ns < 1000 * S:
        all_.step(one, 0, edge_ns)
    before_ns = all_.spread_ns
    all_.arrived("a", 3600 * S)
    assert all_.spread_ns == before_ns
    assert one.predicted_ns is not None


def test_request_window_is_answered_by_request_until_next_window() -> None:
    """Answered by a request while the window was open, until the next one opens."""
    all_ = Expectations(lambda name: At((10 * S, 20 * S)), alpha=1.0, delta_ns=S, history_ns=S)
    one = all_.of("a")
    all_.arrived("a", 5 * S)
    all_.step(one, 0, 9 * S)
    assert (one.is_maximalist, one.is_answered) == (True, False)
    all_.arrived("a", 10 * S)
    all_.step(one, 0, 12 * S)
    assert (one.is_maximalist, one.is_answered) == (False, True)
    all_.step(one, 0, 20 * S)
    assert (one.is_maximalist, one.is_answered) == (True, False)


def test_request_after_forecast_of_none_is_miss_without_error() -> None:
    """A forecast that has ended says never: a request all the same is a miss, not a prediction that was off by
    years.
    """
    all_ = Expectations(lambda name: At((10 * S, 20 * S, 10**6 * S)), alpha=1.0, delta_ns=S, history_ns=4 * S)
    for at_s in (9, 21, 30, 41):
        all_.arrived("a", at_s * S)
    assert all_.spread_ns <= 11 * S
    assert all_.hit_rate("a") < all_.hit_rate("nobody")


def test_hit_rate_is_high_for_true_and_low_for_false_predictions() -> None:
    """One application is asked when it is predicted, every ten seconds; the other between, with predictions for any
    time.
    """
    chance = Random(1)
    false = tuple(round(chance.uniform(0, 2000) * S) for _ in range(200))
    times = {"true": tuple(range(10 * S, 2000 * S, 10 * S)), "false": tuple(sorted(false))}
    all_ = Expectations(lambda name: At(times[name]), alpha=1.0, delta_ns=S, history_ns=10 * S)
    asked = [(at_ns, "true") for at_ns in times["true"]]
    asked += [(round(chance.uniform(0, 2000) * S), "false") for _ in range(200)]
    for at_ns, name in sorted(asked):
        all_.arrived(name, at_ns)
    assert all_.hit_rate("true") > 0.99
    assert all_.hit_rate("false") < 0.5
