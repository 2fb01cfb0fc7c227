"""Numbers of runs at once: which are timed, which a profile lacks, and what stands in for them."""

import pytest

from appliance.domain.catalogue import Latency
from appliance.domain.runs_at_once import RunsAtOnce


def rows(*found: tuple[int, int, float]) -> list[Latency]:
    """(batch, runs at once, milliseconds); twice as long at worst."""
    return [Latency(batch, ms, 2 * ms, count) for batch, count, ms in found]


@pytest.mark.parametrize(
    ("workers", "expected"), [(1, []), (2, [2]), (3, [2, 3]), (4, [2, 4]), (6, [2, 4, 6]), (16, [2, 4, 8, 16])]
)
def test_long_runs_are_timed_at_once_by_doubling_up_to_the_workers(workers: int, expected: list[int]) -> None:
    """One long batch is enough."""
    assert RunsAtOnce(workers, 16).to_time([0.3, 0.5]) == expected


@pytest.mark.parametrize(("cores", "expected"), [(8, []), (4, [8]), (2, [4, 8]), (1, [2, 4, 8])])
def test_short_runs_are_timed_at_once_where_they_outnumber_the_cores(cores: int, expected: list[int]) -> None:
    assert RunsAtOnce(8, cores).to_time([0.3, 0.4]) == expected


@pytest.mark.parametrize(
    ("timed", "expected"),
    [
        (rows((1, 1, 4.0), (2, 1, 6.0)), [2, 4]),
        (rows((1, 1, 4.0), (2, 1, 6.0), (1, 2, 5.0), (2, 2, 7.0)), [4]),
        (rows((1, 1, 4.0), (2, 1, 6.0), (1, 2, 5.0), (1, 4, 8.0)), []),  # larger ones had no room
        (rows((1, 1, 4.0), (2, 1, 6.0), (2, 2, 7.0), (1, 4, 8.0)), [2]),  # the smaller one had
        (rows((1, 1, 0.2)), [4]),
        ([], []),
    ],
    ids=["alone", "fewer workers", "small batches", "hole", "short", "nothing"],
)
def test_number_of_runs_at_once_is_missing_unless_the_smaller_batches_are_timed(
    timed: list[Latency], expected: list[int]
) -> None:
    """Four workers on two cores."""
    assert RunsAtOnce(4, 2).missing(timed) == expected


def test_missing_number_of_runs_at_once_brings_no_more_than_the_number_below() -> None:
    """Runs of 4 ms alone and 5 ms by twos: four at once take 10 ms, so that they are done no sooner than two and two.
    What was timed stays as it is.
    """
    timed = rows((1, 1, 4.0), (1, 2, 5.0))
    assert RunsAtOnce(4, 2).filled(timed) == (*timed, Latency(1, 10.0, 20.0, 4))
    assert RunsAtOnce(4, 2).filled(timed[:1]) == (timed[0], Latency(1, 8.0, 16.0, 2), Latency(1, 16.0, 32.0, 4))
    assert RunsAtOnce(2, 2).filled(timed) == tuple(timed)


def test_short_runs_that_outnumber_the_cores_take_what_the_cores_need_where_none_was_timed() -> None:
    assert RunsAtOnce(4, 2).filled(rows((1, 1, 0.2))) == tuple(rows((1, 1, 0.2), (1, 4, 0.4)))
    assert RunsAtOnce(4, 2).filled([]) == ()
