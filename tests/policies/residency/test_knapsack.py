"""The exact knapsack against every combination."""

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.policies.residency.knapsack import Choice, best_choices

NOTHING = Choice(0, 0, 0.0, None)


def _fits(taken: Sequence[Choice], free_bytes: int) -> bool:
    return sum(c.bytes for c in taken) + max(c.peak_bytes - c.bytes for c in taken) <= free_bytes


choices = st.builds(
    lambda size, more, worth: Choice(size, size + more, float(worth), None),
    st.integers(1, 40),
    st.just(0) | st.integers(0, 20),
    st.integers(-5, 20),
)
items = st.lists(st.lists(choices, max_size=3).map(lambda larger: [NOTHING, *larger]), min_size=1, max_size=4)


@given(items, st.integers(0, 120))
def test_knapsack_choice_fits_and_is_optimal_without_peaks(items: list[list[Choice]], free_bytes: int) -> None:
    """With peaks it may miss the best one: a combination that is beaten with no more bytes may have the lower peak."""
    taken = best_choices(items, free_bytes)
    assert len(taken) == len(items)
    assert all(choice in item for choice, item in zip(taken, items, strict=True))
    assert _fits(taken, free_bytes)
    flat = [[c._replace(peak_bytes=c.bytes) for c in item] for item in items]
    best = max(sum(c.worth for c in combination) for combination in product(*flat) if _fits(combination, free_bytes))
    assert sum(c.worth for c in best_choices(flat, free_bytes)) == best


def test_knapsack_choice_of_equal_worth_has_the_fewest_bytes() -> None:
    small, large = (Choice(size, size, 3.0, None) for size in (5, 9))
    assert best_choices([[NOTHING, large, small], [NOTHING]], 20) == [small, NOTHING]


def test_knapsack_below_zero_free_bytes_takes_nothing() -> None:
    """Others took memory since."""
    assert best_choices([[NOTHING, Choice(5, 5, 1.0, None)], [NOTHING]], -3) == [NOTHING, NOTHING]
    assert best_choices([], -3) == []


def test_knapsack_item_without_an_empty_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="0 bytes"):
        best_choices([[Choice(5, 5, 1.0, None)]], 4)
