"""What is kept free of a promise of accuracy."""

import random

from appliance.runtime.sessions.ageing import MOST_SHARE, Ageing


def test_margin_of_accuracy_promise_covers_nearly_all_windows() -> None:
    rng = random.Random(2)
    ageing, beyond = Ageing(), 0
    for window in range(2000):
        planned = [rng.uniform(3.0, 5.0) for _ in range(5)]
        for stride in planned:
            ageing.expect(stride)
        found = rng.gauss(0.1, 0.2)
        beyond += window >= 20 and found > ageing.kept_free(5.0)
        ageing.observe(sum(planned) / 5 + found, 5.0)
    assert beyond <= 0.04 * 2000
    assert 0.3 < ageing.kept_free(5.0) < 1.2


def test_margin_of_accuracy_promise_is_bounded() -> None:
    ageing = Ageing()
    for _ in range(50):
        ageing.expect(4.0)
        ageing.observe(44.0, 5.0)
    assert ageing.kept_free(5.0) == MOST_SHARE * 5.0


def test_margin_of_accuracy_promise_is_zero_after_younger_windows() -> None:
    ageing = Ageing()
    before = ageing.kept_free(5.0)
    for _ in range(50):
        ageing.expect(4.0)
        ageing.observe(3.5, 5.0)
    assert before > ageing.kept_free(5.0) == 0.0


def test_window_without_plan_leaves_margin_of_promise_unchanged() -> None:
    ageing = Ageing()
    before = ageing.kept_free(5.0)
    ageing.observe(40.0, 5.0)
    assert ageing.kept_free(5.0) == before
