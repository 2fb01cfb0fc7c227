"""Which neighbour comes next: by bytes, the nearest first, and never in the place of a nearer one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.policies.residency.neighbours import Neighbour, NeighbourProblem, next_neighbour


def near(name: str, distance: int, size: int = 10, *, is_there: bool = False) -> Neighbour:
    return Neighbour(name, distance, size, size, is_there)


def filled(problem: NeighbourProblem) -> NeighbourProblem:
    """After all that come, one after the other."""
    for _ in range(1000):
        plan = next_neighbour(problem)
        if plan.bring is None:
            return problem
        by_name = {n.name: n for n in problem.neighbours}
        coming, leaving = by_name[plan.bring], [by_name[name] for name in plan.leave]
        assert not coming.is_there
        assert all(n.is_there and n.distance > max(0, coming.distance) for n in leaving)
        free = problem.free_bytes + sum(n.bytes for n in leaving)
        assert coming.need_bytes + (problem.reserve_bytes if coming.distance else 0) <= free, (
            "it takes what is not free"
        )
        moved = {coming.name: True, **dict.fromkeys(plan.leave, False)}
        problem = replace(
            problem,
            free_bytes=free - coming.bytes,
            neighbours=tuple(replace(n, is_there=moved.get(n.name, n.is_there)) for n in problem.neighbours),
        )
    raise AssertionError("it comes to no end")


def names(problem: NeighbourProblem) -> set[str]:
    return {n.name for n in problem.neighbours if n.is_there}


def test_neighbours_fill_the_free_bytes_nearest_first() -> None:
    """Not a number of them: where three of this size fit, five smaller ones do."""
    large = tuple(near(f"n{distance}", distance, 10) for distance in range(1, 9))
    small = tuple(near(f"n{distance}", distance, 6) for distance in range(1, 9))
    assert names(filled(NeighbourProblem(30, 0, large))) == {"n1", "n2", "n3"}
    assert names(filled(NeighbourProblem(30, 0, small))) == {"n1", "n2", "n3", "n4", "n5"}


def there(*distances: int) -> list[Neighbour]:
    return [near(f"n{distance}", distance, is_there=True) for distance in distances]


@pytest.mark.parametrize(
    ("free_bytes", "reserve_bytes", "neighbours", "bring", "leave"),
    [
        pytest.param(15, 0, [near("large", 1, 20), near("small", 2)], "small", (), id="too large for a farther one"),
        pytest.param(0, 0, [near("new", 1), *there(2, 5, 9)], "new", ("n9",), id="farthest alone leaves"),
        pytest.param(0, 0, [near("new", 2), *there(1, 2)], None, (), id="none leaves for one as far"),
        pytest.param(0, 0, [near("new", 3), *there(1, 2)], None, (), id="none leaves for a farther one"),
        pytest.param(15, 10, [near("n", 1)], None, (), id="reserve is no neighbour's"),
        pytest.param(15, 10, [near("n", 1), near("used", 0)], "used", (), id="reserve is for a network in use"),
        pytest.param(0, 0, [near("n", 1), near("used", 0, is_there=True)], None, (), id="network in use stays"),
    ],
)
def test_next_neighbour_is_the_nearest_that_has_room_or_a_farther_place(
    free_bytes: int, reserve_bytes: int, neighbours: list[Neighbour], bring: str | None, leave: tuple[str, ...]
) -> None:
    plan = next_neighbour(NeighbourProblem(free_bytes, reserve_bytes, tuple(neighbours)))
    assert (plan.bring, plan.leave) == (bring, leave)


@given(
    st.integers(-20, 100),
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 30), st.integers(0, 10), st.booleans()), max_size=12),
)
def test_neighbour_filling_ends_when_no_nearer_neighbour_fits(
    free: int, reserve: int, drawn: list[tuple[int, int, int, bool]]
) -> None:
    """However sizes, peaks and distances lie; nothing that is not free, or a farther one's, is ever taken."""
    neighbours = tuple(
        Neighbour(f"n{at}", distance, size, size + more, is_there)
        for at, (distance, size, more, is_there) in enumerate(drawn)
    )
    problem = NeighbourProblem(free, reserve, neighbours)
    end = filled(problem)
    assert names(end) >= {n.name for n in neighbours if n.is_there and n.distance == 0}
    assert filled(end) == end
