"""Which jobs are left to processors that are not throttled: cases computed by hand."""

import pytest

from appliance.policies.dispatch.sparing import PATIENCE_NS, Waiting, spared

HOT, COOL, OTHER = 0, 1, 2
MS = 1_000_000


def test_jobs_are_spared_while_waiting_takes_no_longer_than_running() -> None:
    """Runs of 30 ms on one worker that is free: the second of them begins when its own time has passed, the third would
    wait for twice as long.
    """
    jobs = [Waiting({COOL: 30 * MS}, None)] * 3
    assert spared(jobs, {HOT: [0], COOL: [0]}, {HOT}) == [True, True, False]


def test_job_that_would_be_late_is_not_spared() -> None:
    """The job that would end at 60 ms has 50; the job behind it takes its place there."""
    jobs = [Waiting({COOL: 30 * MS}, left * MS) for left in (30, 50, 60)]
    assert spared(jobs, {HOT: [0], COOL: [0]}, {HOT}) == [True, False, True]


def test_short_job_is_spared_up_to_the_patience() -> None:
    """Up to the patience, whatever they take."""
    job = [Waiting({COOL: MS}, None)]
    assert spared(job, {HOT: [0], COOL: [PATIENCE_NS]}, {HOT}) == [True]
    assert spared(job, {HOT: [0], COOL: [PATIENCE_NS + 1]}, {HOT}) == [False]


def test_spared_job_counts_on_the_processor_that_ends_first() -> None:
    """Of two that are not throttled; each job takes the place that it is weighed for."""
    free = {HOT: [0], COOL: [10 * MS], OTHER: [0]}
    jobs = [Waiting({COOL: 10 * MS, OTHER: 40 * MS}, None), Waiting({COOL: 10 * MS}, 25 * MS)]
    assert spared(jobs, free, {HOT}) == [True, False]


@pytest.mark.parametrize("free", [{HOT: [0]}, {HOT: [0], COOL: []}, {HOT: [0], OTHER: [0]}])
def test_job_with_only_a_throttled_processor_is_not_spared(free: dict[int, list[int]]) -> None:
    assert spared([Waiting({COOL: MS}, None)], free, {HOT}) == [False]
