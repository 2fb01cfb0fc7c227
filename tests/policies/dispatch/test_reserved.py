"""What fits before starts that are reserved."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.policies.dispatch.reserved import ReservedStart, gap_ns


def starts(*of: tuple[int, int]) -> list[ReservedStart]:
    """(start, run) on the first processor."""
    return [ReservedStart(at, {0: takes}) for at, takes in of]


def test_gap_on_the_only_worker_ends_at_the_next_reserved_start() -> None:
    assert gap_ns(starts((50, 10), (70, 10)), {0: [0]}, 0) == 50
    assert gap_ns(starts((0, 10)), {0: [0]}, 0) == 0
    assert gap_ns([], {0: [0]}, 0) is None


def test_gap_keeps_a_worker_free_for_each_reserved_start() -> None:
    """Another worker that is free by then will do; a worker that is not free by then will not."""
    assert gap_ns(starts((50, 10)), {0: [0, 0]}, 0) is None
    assert gap_ns(starts((50, 10)), {0: [0, 40]}, 0) is None
    assert gap_ns(starts((50, 10)), {0: [0, 60]}, 0) == 50
    assert gap_ns(starts((50, 10), (55, 10)), {0: [0, 40]}, 0) == 55
    assert gap_ns(starts((50, 5), (55, 10)), {0: [0, 40]}, 0) is None


def test_gap_search_stops_at_the_deciding_reserved_start() -> None:
    """Many may be reserved, and each tenant that waits asks."""
    asked = iter(starts((10, 50), (50, 10), (70, 10)))
    assert gap_ns(asked, {0: [0, 8]}, 0) == 50
    assert [one.start_ns for one in asked] == [70]


def test_reserved_start_binds_only_the_processor_where_it_ends_first() -> None:
    """A slow processor is not kept for what would run on a quick one, and a start that does not run on a processor
    keeps no worker there."""
    both = [ReservedStart(50, {0: 10, 1: 30})]
    assert gap_ns(both, {0: [0], 1: [0]}, 0) == 50
    assert gap_ns(both, {0: [0], 1: [0]}, 1) is None
    assert gap_ns(both, {0: [90], 1: [0]}, 1) == 50
    assert gap_ns([ReservedStart(50, {1: 30})], {0: [0], 1: [0]}, 0) is None


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=6),
    st.lists(st.integers(0, 60), max_size=3),
)
def test_run_within_the_gap_delays_no_reserved_start(of: list[tuple[int, int]], busy: list[int]) -> None:
    """By a plain simulation of the workers of one processor; what is longer makes something later."""

    def ends(takes: int) -> list[int]:
        free, found = [takes, *busy], []
        for at, run in sorted(of):
            fitting = [one for one in free if one <= at]
            worker = max(fitting) if fitting else min(free)
            free.remove(worker)
            free.append(max(worker, at) + run)
            found.append(free[-1])
        return found

    gap = gap_ns(starts(*sorted(of)), {0: [0, *busy]}, 0)
    anyway = ends(0)
    if gap is None:
        assert ends(10_000) == anyway
    else:
        assert ends(gap) == anyway
        assert ends(10_000) > anyway
