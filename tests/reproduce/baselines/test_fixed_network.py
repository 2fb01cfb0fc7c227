"""The baselines with one fixed network."""

from reproduce.baselines import ADAPTATION
from tests.instances.adaptation import drawn


def test_edf_baseline_runs_its_network_on_every_worker() -> None:
    """Smallest, middle (352 px of 128 … 608 px) and largest of the filtered zoo, on every worker that serves
    someone.
    """
    problem = drawn(0, 4, 4)

    for policy, network in (("edf-smallest", "yolo-128"), ("edf-middle", "yolo-352"), ("edf-largest", "yolo-608")):
        assert {w.network for w in ADAPTATION[policy]().plan(problem).workers} == {network}


def test_edf_baseline_with_a_larger_network_serves_no_more_clients() -> None:
    problem = drawn(3, 4, 8)
    plans = [ADAPTATION[f"edf-{size}"]().plan(problem) for size in ("smallest", "middle", "largest")]
    served = [len(problem.clients) - len(plan.unmapped) for plan in plans]

    assert served == sorted(served, reverse=True)
    assert served[0] > served[2]
