"""P(r_j | A_i ∈ A*): a conditional on who is active, with its prior."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.policies.forecast.companions import WINDOWS_MAX, Companions

WINDOWS = st.lists(st.tuples(st.sampled_from("abcd"), st.sets(st.sampled_from("abcd"))), max_size=60)


def test_companion_chance_before_any_window_is_the_prior() -> None:
    """One in twenty."""
    assert Companions().beside("a")["b"] == pytest.approx(0.05)


def test_companion_chance_is_conditional_on_the_active_application() -> None:
    """B comes in each window of A and never in C's: likely beside A, unlikely beside C, though its marginal rate is
    a half.
    """
    companions = Companions()
    for _ in range(30):
        companions.observe("a", {"b"})
        companions.observe("c", ())
    assert companions.beside("a")["b"] > 0.9
    assert companions.beside("c")["b"] < 0.06
    assert companions.beside("a")["d"] < 0.02


def test_companion_chance_is_the_posterior_by_hand() -> None:
    """Two windows of a, b in one of them: m = 2/22, P = (4·m + 1) / 6."""
    companions = Companions()
    companions.observe("a", {"b"})
    companions.observe("a", ())
    assert companions.beside("a")["b"] == pytest.approx((4 * 2 / 22 + 1) / 6)


def test_companion_chance_beside_a_new_application_is_the_base_rate() -> None:
    """Nothing known of x's windows: b's share in those of all the others, its own aside."""
    companions = Companions()
    for k in range(40):
        companions.observe("a", {"b"} if k % 2 else ())
        companions.observe("b", ())
    assert companions.beside("x")["b"] == pytest.approx((1 + 20) / (20 + 40))


def test_companion_chance_forgets_windows_beyond_the_maximum() -> None:
    """After as many windows without b as are remembered, nothing of the old habit is left."""
    companions = Companions()
    for _ in range(100):
        companions.observe("a", {"b"})
    for _ in range(WINDOWS_MAX):
        companions.observe("a", ())
    fresh = Companions()
    for _ in range(WINDOWS_MAX):
        fresh.observe("a", ())
    assert companions.beside("a")["b"] == fresh.beside("a")["b"]


@given(WINDOWS)
def test_companion_chance_is_always_a_probability(seen: list[tuple[str, set[str]]]) -> None:
    """Strictly between 0 and 1 for any pair of two, 0 beside itself."""
    companions = Companions()
    for active, came in seen:
        companions.observe(active, came)
    for j in "abcd":
        for i in "abcdx":
            assert companions.beside(i)[j] == 0.0 if i == j else 0.0 < companions.beside(i)[j] < 1.0


@given(WINDOWS)
def test_companion_chance_depends_on_no_order_of_windows(seen: list[tuple[str, set[str]]]) -> None:
    """While none is forgotten, the same windows in another order teach the same."""
    shuffled = sorted(seen, key=lambda window: (window[0], sorted(window[1])))
    one, other = Companions(), Companions()
    for active, came in seen:
        one.observe(active, came)
    for active, came in shuffled:
        other.observe(active, came)
    assert all(one.beside(i)[j] == other.beside(i)[j] for j in "abcd" for i in "abcd")


@given(WINDOWS)
def test_forgotten_application_leaves_no_trace(seen: list[tuple[str, set[str]]]) -> None:
    """Forgetting d leaves what would be known had d never been there."""
    one, other = Companions(), Companions()
    for active, came in seen:
        one.observe(active, came)
        if active != "d":
            other.observe(active, came - {"d"})
    one.forget("d")
    assert all(one.beside(i)[j] == other.beside(i)[j] for j in "abcd" for i in "abcd")


def test_companions_of_an_application_list_all_that_were_seen() -> None:
    """Every application that had a window or came in one, the active one among them; others are as likely as the prior
    says."""
    companions = Companions()
    assert list(companions.beside("a")) == []
    companions.observe("a", {"b"})
    companions.observe("c", ())
    beside = companions.beside("a")
    assert (len(beside), set(beside)) == (3, {"a", "b", "c"})
    companions.forget("c")
    assert set(companions.beside("a")) == {"a", "b"}
    assert set(beside) == {"a", "b", "c"}, "what was known then"
