"""Algorithm 1: the dynamic program over all batch sizes, and the order of networks."""

from collections.abc import Sequence
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from appliance.policies.adaptation.base import Client, Network
from appliance.policies.adaptation.budgets import batch_for
from appliance.policies.adaptation.mapping import Mapper, RateScale

# The worked example of Fig. 5, with rates such that the optimum is unique.
RATES = {"c1": 15.0, "c2": 20.0, "c3": 5.0, "c4": 15.0, "c5": 10.0}
BUDGETS_MS = {"c1": 80.0, "c2": 78.0, "c3": 75.0, "c4": 70.0, "c5": 68.0}
EXAMPLE = Network("n", 0.5, 0.0, {2: 33.333, 3: 37.5})
CLIENTS = tuple(Client(name, RATES[name], BUDGETS_MS[name], 1e6) for name in RATES)


def find_clients(clients: Sequence[Client], network: Network, scale: RateScale) -> tuple[Client, ...]:
    """Whom one instance alone takes."""
    mapped = Mapper(clients, [network], scale).mapping([0])
    return mapped[0].clients if mapped else ()


def test_mapping_of_the_papers_example_is_the_papers_answer() -> None:
    """h = 5, 12 and 16 columns; batch 3 reaches 40 with c1, c2, c3; batch 2 reaches 60 with c1, c2, c4, c5, which is
    the answer.
    """
    scale = RateScale.over(CLIENTS, 80.0)
    chosen = find_clients(CLIENTS, EXAMPLE, scale)
    only_three = find_clients(CLIENTS, Network("n", 0.5, 0.0, {3: 37.5}), scale)

    assert scale.step_rps == 5
    assert (scale.columns(60.0), scale.columns(80.0)) == (12, 16)
    assert [client.name for client in chosen] == ["c1", "c2", "c4", "c5"]
    assert sum(client.rate_rps for client in chosen) == 60
    assert batch_for(EXAMPLE, chosen) == 2
    assert [client.name for client in only_three] == ["c1", "c2", "c3"]


def test_mapping_fills_the_most_accurate_network_first() -> None:
    """The most accurate network takes all that it can; the rest goes on to the next."""
    good, poor = Network("good", 0.9, 0.0, {1: 25.0}), Network("poor", 0.1, 0.0, {1: 20.0})
    clients = [Client(name, 20.0, 100.0, 1e6) for name in "abc"]

    mapped = Mapper(clients, [poor, good], RateScale.over(clients, 50.0)).mapping([0, 1])

    assert [(m.network.name, len(m.clients)) for m in mapped] == [("good", 2), ("poor", 1)]


def test_fractional_rates_never_overcommit_an_instance() -> None:
    """Three times 29.97 fit into 90 a second; three times 30.000001, rounded up, do not."""
    network = Network("n", 0.5, 0.0, {9: 100.0})
    fine = [Client(name, 29.97, 300.0, 1e6) for name in "abc"]
    over = [Client(name, 30.000001, 300.0, 1e6) for name in "abc"]

    assert len(find_clients(fine, network, RateScale.over(fine, 90.0))) == 3
    assert len(find_clients(over, network, RateScale.over(over, 90.0))) == 2


@given(
    st.lists(
        st.tuples(st.sampled_from([5.0, 10.0, 15.0, 25.0]), st.sampled_from([60.0, 70.0, 80.0, 100.0])), max_size=7
    ),
    st.dictionaries(st.integers(1, 6), st.sampled_from([20.0, 30.0, 36.0, 45.0, 50.0]), min_size=1),
)
def test_mapped_subset_has_the_largest_total_rate(kinds: list[tuple[float, float]], latency: dict[int, float]) -> None:
    """No other subset that one instance serves has a larger total rate: against all subsets."""
    clients = [Client(f"c{i}", rate, slo, 1e6) for i, (rate, slo) in enumerate(kinds)]
    network = Network("n", 0.5, 0.0, latency)
    best = max(
        sum(c.rate_rps for c in subset)
        for size in range(len(clients) + 1)
        for subset in combinations(clients, size)
        if not subset or batch_for(network, subset) is not None
    )

    chosen = find_clients(clients, network, RateScale.over(clients, 300.0))

    assert sum(c.rate_rps for c in chosen) == best
    assert not chosen or batch_for(network, chosen) is not None
