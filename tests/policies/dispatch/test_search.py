"""The quickest way to do what is left of a job, against ways worked out by hand."""

from collections.abc import Iterable

from appliance.policies.dispatch.base import FOREVER
from appliance.policies.dispatch.partition import Operator, Partition, partition
from appliance.policies.dispatch.search import ANYWHERE, SEARCHES_MAX, Run, Way, search

OPERATORS = (Operator("a", frozenset({"CPU", "GPU"})), Operator("b", frozenset({"GPU"}), ("a",)))
LATENCY_MS = {"CPU": {"a": 3.0}, "GPU": {"a": 9.0, "b": 4.0}}


def _net(done: Iterable[str] = ()) -> Partition:
    return partition("net", OPERATORS, LATENCY_MS, frozenset(done))


def _first_on_the_cpu(net: Partition) -> Run:
    (alone,) = (one for one in net.subgraphs if one.ops == ("a",))
    return Run(alone, 0, 3.0, alone.units)


def test_search_of_a_job_after_a_first_run_goes_on_where_the_rest_runs() -> None:
    """The CPU is free at 12 ms and takes 3; results are moved in 1 ms, and the GPU takes 4."""
    net = _net()
    run = _first_on_the_cpu(net)
    assert search(net, ("CPU", "GPU"), 1.0).after(run, ANYWHERE, 10.0, [12.0, 0.0]) == Way(20.0, 12.0, run)


def test_search_of_a_job_whose_rest_has_no_processor_never_ends() -> None:
    """The GPU is gone: a first run is possible all the same."""
    net = _net()
    run = _first_on_the_cpu(net)
    assert search(net, ("CPU",), 1.0).after(run, ANYWHERE, 10.0, [12.0]) == Way(FOREVER, 12.0, run)


def test_search_of_a_job_that_is_done_has_nothing_to_begin() -> None:
    left = search(_net(done=("a", "b")), ("CPU", "GPU"), 1.0).left(0, None)
    assert (left.took_ms, left.begins) == (0.0, ())


def test_search_beyond_the_kept_transfer_times_is_made_anew() -> None:
    """With the same answer: 3 ms on the CPU, 1 ms to the GPU, and 4 ms there."""
    net = _net()
    first = search(net, ("CPU", "GPU"), 1.0)
    for transfer in range(2, SEARCHES_MAX):
        search(net, ("CPU", "GPU"), float(transfer))
    assert search(net, ("CPU", "GPU"), 1.0) is first
    for transfer in range(2, 2 * SEARCHES_MAX):
        search(net, ("CPU", "GPU"), float(transfer))
    again = search(net, ("CPU", "GPU"), 1.0)
    assert again is not first
    assert again.left(0, None).took_ms == first.left(0, None).took_ms == 8.0
