"""Old and new selections joined element by element, and the neighbours to prefetch."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from appliance.policies.adaptation.matching import match, prefetch

ORDER = tuple("abcdefgh")


def test_networks_are_matched_to_workers_in_order_of_size() -> None:
    """Workers with b, h, d and the new e, a, h: the largest goes where the largest was, and so on."""
    assert match(["b", "h", "d"], ["e", "a", "h"], ORDER, 3) == (2, 0, 1)


def test_unchanged_selection_moves_no_network() -> None:
    """The same multiset in any order goes to the workers that hold it."""
    workers = match(["c", "a", "c"], ["a", "c", "c"], ORDER, 3)

    assert workers[0] == 1
    assert sorted(workers[1:]) == [0, 2]


def test_network_for_two_workers_goes_to_the_nearer_one() -> None:
    assert match(["a", "g"], ["b"], ORDER, 2) == (0,)
    assert match(["a", "g"], ["f"], ORDER, 2) == (1,)


def test_empty_worker_is_chosen_last() -> None:
    """A worker that holds nothing, or a network that left the zoo, must load anyway."""
    assert match([None, "h"], ["a"], ORDER, 2) == (1,)
    assert match(["gone", "h"], ["a"], ORDER, 2) == (1,)
    assert match([], ["a", "b"], ORDER, 3) in [(1, 0), (0, 1)]


def test_worker_keeps_its_network_when_a_new_network_fills_an_empty_worker() -> None:
    """Of workers with a, nothing and c, those two stay, and the new d goes where nothing is: one load in place of
    three."""
    assert match(["a", None, "c"], ["a", "c", "d"], ORDER, 3) == (0, 2, 1)
    assert match(["b", None], ["h", "b"], ORDER, 2) == (1, 0)


@given(st.lists(st.sampled_from([*ORDER, None]), min_size=1, max_size=5), st.data())
def test_matching_has_the_least_sum_of_steps(previous: list[str | None], data: st.DataObject) -> None:
    """Over all assignments of the selected networks to workers, the sum of steps is the least; each worker gets at
    most one network. A worker that holds nothing is farther away than any network."""
    selected = data.draw(st.lists(st.sampled_from(ORDER), min_size=1, max_size=len(previous)))
    workers = match(previous, selected, ORDER, len(previous))

    def steps(chosen: tuple[int, ...]) -> int:
        held = [previous[k] for k in chosen]
        pairs = zip(held, selected, strict=True)
        return sum(len(ORDER) if k is None else abs(ORDER.index(k) - ORDER.index(n)) for k, n in pairs)

    assert len(set(workers)) == len(selected)
    assert steps(workers) == min(steps(c) for c in permutations(range(len(previous)), len(selected)))


def test_prefetch_takes_the_networks_nearest_to_the_active_network() -> None:
    """Two on each side, nearest first; at an end of the zoo the window moves inwards; active networks are not in it."""
    assert prefetch(["d"], ORDER, 5) == ("c", "e", "b", "f")
    assert prefetch(["a"], ORDER, 5) == ("b", "c", "d", "e")
    assert prefetch(["h"], ORDER, 3) == ("g", "f")
    assert prefetch(["d", "e"], ORDER, 3) == ("c", "f")
    assert prefetch([], ORDER, 5) == ()
