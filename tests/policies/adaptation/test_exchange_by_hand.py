"""Pairwise exchange on small problems whose answer is plain."""

from appliance.policies.adaptation.base import AdaptationInput, Client, Network
from appliance.policies.adaptation.exchange import PairwiseExchange


def test_exchange_of_nine_workers_that_cannot_be_raised_ends() -> None:
    """One network and a client that fills three quarters of a worker for each: nothing better can be tried, however
    much work is allowed.
    """
    network = Network("n", 0.5, 0.0, {1: 50.0})
    clients = tuple(Client(f"c{at}", 15.0, 200.0, 1e9) for at in range(9))

    plan = PairwiseExchange(work_max=1 << 60).plan(AdaptationInput((network,), 9, clients))

    assert sorted(worker.clients for worker in plan.workers) == [(client.name,) for client in clients]
    assert (plan.unmapped, plan.objective) == ((), 9 * 15.0 * 0.5)


def test_exchange_where_annealing_leaves_workers_empty_fills_them() -> None:
    """Four near clients that fill a worker each, a far one, three workers. The paper's way counts the large quick
    network as slow as the smaller one, so it serves the far client alone; the best is three of the near ones.
    """
    small, large = Network("small", 0.3, 1e3, {1: 100.0}), Network("large", 0.9, 1e5, {1: 5.0})
    near = tuple(Client(f"near{at}", 150.0, 100.0, 1e8) for at in range(4))
    far = Client("far", 5.0, 300.0, 1e6)

    plan = PairwiseExchange(work_max=100_000).plan(AdaptationInput((small, large), 3, (far, *near)))

    assert [(worker.network, len(worker.clients)) for worker in plan.workers] == [("large", 1)] * 3
    assert (plan.unmapped[0], len(plan.unmapped), plan.objective) == ("far", 2, 3 * 150.0 * 0.9)


def test_exchange_with_too_many_patterns_counts_clients_as_the_fastest() -> None:
    """170 networks with some 50 ways each to fill a worker from clients of two rates: 8500 patterns, more than are
    looked at. Counted as one a second all the same, the 108 clients fit seven workers with the most accurate network.
    """
    networks = tuple(
        Network(f"n{at:03}", 0.9 - 0.001 * at, 0.0, {1: 1000.0 / capacity})
        for at, capacity in enumerate(51.0 + 0.02 * at for at in range(170))
    )
    clients = tuple(Client(f"c{at:03}", (0.9, 1.0)[at % 2], 1000.0, 1e9) for at in range(108))

    plan = PairwiseExchange(work_max=1).plan(AdaptationInput(networks, 7, clients))

    rate = {client.name: client.rate_rps for client in clients}
    assert {worker.network for worker in plan.workers} == {"n000"}
    assert sorted(one for worker in plan.workers for one in worker.clients) == sorted(rate)
    assert all(sum(rate[one] for one in worker.clients) <= 51.0 for worker in plan.workers)
