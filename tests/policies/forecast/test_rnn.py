"""The recurrent network: its gradient, what it learns that a mean cannot, and that it survives being stored."""

import json
from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from appliance.policies.forecast.choice import mean_error_ns
from appliance.policies.forecast.ewma import Ewma
from appliance.policies.forecast.rnn import ARRIVALS_MIN, Rnn, trained
from appliance.policies.forecast.training import ROWS_MAX, STEPS, train
from appliance.policies.forecast.vanilla import HUBER, Vanilla, Weights, gradient
from tests.policies.forecast.arrivals import SECOND, alternating, counted_bursts, poisson
from tests.present import present


def test_rnn_gradient_equals_finite_differences() -> None:
    """Back-propagation through time gives what shifting each weight a little gives."""
    draw = np.random.default_rng(0)
    weights = Weights(draw.normal(0, 0.5, Weights.size(4)), 4)
    inputs, targets = draw.normal(size=(6, 5)), draw.normal(size=6)

    def loss(flat: np.ndarray) -> float:
        errors = Vanilla(Weights(flat, 4), 5).answers(inputs) - targets
        return float(np.mean(np.sqrt(errors**2 + HUBER**2)))

    shifts = np.eye(len(weights.flat)) * 1e-6
    expected = [(loss(weights.flat + s) - loss(weights.flat - s)) / 2e-6 for s in shifts]
    np.testing.assert_allclose(gradient(weights, inputs, targets), expected, atol=1e-8)


def test_rnn_answers_a_single_row_as_in_a_batch() -> None:
    """The quick path for one row gives what the path for many gives."""
    draw = np.random.default_rng(1)
    net = Vanilla(Weights(draw.normal(0, 0.5, Weights.size(6)), 6), 7)
    rows = draw.normal(size=(5, 7))
    np.testing.assert_allclose([net.answer(row.tolist()) for row in rows], net.answers(rows), atol=1e-12)


@pytest.mark.parametrize("pattern", [alternating, counted_bursts])
def test_rnn_learns_an_order_that_a_mean_cannot(pattern: Callable[[Random, int], list[int]]) -> None:
    """Trained on two thirds, it is within a tenth of the weighted mean's error on the rest."""
    history = pattern(Random(5), 180)
    forecaster = present(trained(history[:120], 0))
    assert mean_error_ns(forecaster, history, 120) < 0.1 * mean_error_ns(Ewma(), history, 120)


def test_rnn_spread_is_small_for_order_and_large_for_chance() -> None:
    """The spread is small where the pattern is certain, and about a gap where arrivals are random."""
    spreads = []
    for pattern in (alternating, poisson):
        history = pattern(Random(2), 200)
        forecaster = present(trained(history, 0))
        prediction = present(forecaster.predict(history, history[-1]))
        spreads.append(prediction.spread_ns / (prediction.next_ns - history[-1]))
    assert spreads[0] < 0.1
    assert spreads[1] > 0.4


def test_rnn_training_is_a_function_of_history_and_seed() -> None:
    history = alternating(Random(1), 60)
    first, second, other = trained(history, 3), trained(history, 3), trained(history, 4)
    assert first is not None
    assert second is not None
    assert other is not None
    assert first.to_json() == second.to_json() != other.to_json()


def test_rnn_predicts_alike_after_json() -> None:
    """Stored and read again, it predicts the same to the nanosecond."""
    history = poisson(Random(1), 80)
    forecaster = present(trained(history, 3))
    copy = Rnn.from_json(forecaster.to_json())
    for end in range(40, 80):
        assert copy.predict(history[:end], history[end - 1]) == forecaster.predict(history[:end], history[end - 1])


def test_rnn_refuses_a_damaged_document() -> None:
    """A stored text that lacks a part, does not fit its sizes or is not finite is a ValueError, never a wrong
    forecaster.
    """
    forecaster = present(trained(alternating(Random(1), 60), 3))
    good = json.loads(forecaster.to_json())
    damaged = [
        {},
        {**good, "deviation": 0.0},
        {**good, "mean": float("nan")},
        {key: value for key, value in good.items() if key != "net"},
        {**good, "net": {**good["net"], "hidden": 3}},
        {**good, "net": {**good["net"], "weights": [float("inf")] * len(good["net"]["weights"])}},
        {**good, "net": {"steps": 8}},
    ]
    for document in damaged:
        with pytest.raises(ValueError, match="not a"):
            Rnn.from_json(json.dumps(document))


def test_rnn_is_not_trained_on_a_short_history() -> None:
    """One arrival fewer than the minimum gives no network."""
    history = alternating(Random(1), ARRIVALS_MIN)
    assert trained(history, 0) is not None
    assert trained(history[1:], 0) is None


def test_rnn_training_ignores_rows_beyond_the_maximum() -> None:
    """The budget is stated: rows beyond the latest ones do not change the weights."""
    draw = np.random.default_rng(0)
    inputs, targets = draw.normal(size=(ROWS_MAX + 50, STEPS)), draw.normal(size=ROWS_MAX + 50)
    whole, latest = (train(inputs[k:], targets[k:], 0, epochs=3).to_json() for k in (0, 50))
    assert whole == latest


def test_rnn_answers_stay_near_the_training_gaps() -> None:
    """Gaps a million times those of training are answered by no more than a little beyond the training's longest."""
    history = alternating(Random(1), 100)
    forecaster = present(trained(history, 0))
    strange = [k * 1_000_000 * SECOND for k in range(20)]
    prediction = present(forecaster.predict(strange, strange[-1]))
    assert prediction.next_ns - strange[-1] < 20 * SECOND
