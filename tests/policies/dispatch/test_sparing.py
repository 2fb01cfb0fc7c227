"""Which jobs are left to processors that are not throttled: cases computed by hand."""

import pytest

from appliance.policies.dispatch.sparing import PATIENCE_NS, Waiting, spared

HOT, COOL, OTHER = 0, 1, 2
MS = 1_000_000


def test_as_far_as_there_is_time() -> None:
    """Runs of 30 ms on one worker that is free: the second of them begins when its own time has passed, the third would
    wait for twice as long.
    """
    jobs = [Waiting({COOL: 30 * MS}, None)] * 3
    assert spared(jobs, {HOT: [0], COOL: [0]}, {HOT}) == [True, True, False]


def test_nothing_is_late_for_it() -> None:
    """The one that would end at 60 ms has 50; the one behind it takes its place there."""
    jobs = [Waiting({COOL: 30 * MS}, left * MS) for left in (30, 50, 60)]
    assert spared(jobs, {HOT: [0], COOL: [0]}, {HOT}) == [True, False, True]


def test_short_runs_wait_a_moment() -> None:
    """Up to the patience, whatever they take."""
    job = [Waiting({COOL: MS}, None)]
    assert spared(job, {HOT: [0], COOL: [PATIENCE_NS]}, {HOT}) == [True]
    assert spared(job, {HOT: [0], COOL: [PATIENCE_NS + 1]}, {HOT}) == [False]


def test_where_it_is_done_first() -> None:
    """Of two that are not throttled; each job takes the place that it is weighed for."""
    free = {HOT: [0], COOL: [10 * MS], OTHER: [0]}
    jobs = [Waiting({COOL: 10 * MS, OTHER: 40 * MS}, None), Waiting({COOL: 10 * MS}, 25 * MS)]
    assert spared(jobs, free, {HOT}) == [True, False]


@pytest.mark.parametrize("free", [{HOT: [0]}, {HOT: [0], COOL: []}, {HOT: [0], OTHER: [0]}])
def test_the_only_one_that_can(free: dict[int, list[int]]) -> None:
    """It goes on."""
    assert spared([Waiting({COOL: MS}, None)], free, {HOT}) == [False]
