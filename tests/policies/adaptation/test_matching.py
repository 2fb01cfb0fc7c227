"""Old and new selections joined element by element, and the neighbours to prefetch."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from appliance.policies.adaptation.matching import match, prefetch

ORDER = tuple("abcdefgh")


def test_both_sorted_by_size_and_joined() -> None:
    """Workers with b, h, d and the new e, a, h: the largest goes where the largest was, and so on."""
    assert match(["b", "h", "d"], ["e", "a", "h"], ORDER, 3) == (2, 0, 1)


def test_a_selection_that_stays_moves_nothing() -> None:
    """The same multiset in any order goes to the workers that hold it."""
    workers = match(["c", "a", "c"], ["a", "c", "c"], ORDER, 3)

    assert workers[0] == 1
    assert sorted(workers[1:]) == [0, 2]


def test_fewer_networks_leave_the_far_worker_idle() -> None:
    """One network for two workers takes the one that is near."""
    assert match(["a", "g"], ["b"], ORDER, 2) == (0,)
    assert match(["a", "g"], ["f"], ORDER, 2) == (1,)


def test_an_empty_worker_is_the_last_choice() -> None:
    """A worker that holds nothing, or a network that left the zoo, must load anyway."""
    assert match([None, "h"], ["a"], ORDER, 2) == (1,)
    assert match(["gone", "h"], ["a"], ORDER, 2) == (1,)
    assert match([], ["a", "b"], ORDER, 3) in [(1, 0), (0, 1)]


def test_who_holds_a_network_keeps_it_when_others_come_to_empty_workers() -> None:
    """Of workers with a, nothing and c, those two stay, and the new d goes where nothing is: one load in place of
    three."""
    assert match(["a", None, "c"], ["a", "c", "d"], ORDER, 3) == (0, 2, 1)
    assert match(["b", None], ["h", "b"], ORDER, 2) == (1, 0)


@given(st.lists(st.sampled_from([*ORDER, None]), min_size=1, max_size=5), st.data())
def test_no_other_assignment_moves_less(previous: list[str | None], data: st.DataObject) -> None:
    """Over all assignments of the selected networks to workers, the sum of steps is the least; each worker gets at
    most one. One that holds nothing is farther away than any network.
    """
    selected = data.draw(st.lists(st.sampled_from(ORDER), min_size=1, max_size=len(previous)))
    workers = match(previous, selected, ORDER, len(previous))

    def steps(chosen: tuple[int, ...]) -> int:
        held = [previous[k] for k in chosen]
        pairs = zip(held, selected, strict=True)
        return sum(len(ORDER) if k is None else abs(ORDER.index(k) - ORDER.index(n)) for k, n in pairs)

    assert len(set(workers)) == len(selected)
    assert steps(workers) == min(steps(c) for c in permutations(range(len(previous)), len(selected)))


def test_five_around_the_active_one() -> None:
    """Two on each side, nearest first; at an end of the zoo the window moves inwards; the active ones are not in it."""
    assert prefetch(["d"], ORDER, 5) == ("c", "e", "b", "f")
    assert prefetch(["a"], ORDER, 5) == ("b", "c", "d", "e")
    assert prefetch(["h"], ORDER, 3) == ("g", "f")
    assert prefetch(["d", "e"], ORDER, 3) == ("c", "f")
    assert prefetch([], ORDER, 5) == ()
