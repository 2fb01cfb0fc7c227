"""The zoo filter and the monotone profile."""

from appliance.policies.adaptation.base import Network
from appliance.policies.adaptation.zoo import by_size, filtered, monotone
from tests.instances.adaptation import yolo


def test_filter_removes_what_is_larger_and_less_accurate() -> None:
    """640 px leaves against 608 px, as in the paper; nothing else does."""
    names = [network.name for network in filtered(reversed(yolo()))]

    assert "yolo-640" not in names
    assert names == [f"yolo-{side}" for side in range(128, 609, 32)]


def test_monotone_raises_a_noisy_p99_over_networks_and_batches() -> None:
    """A latency below that of a smaller network or of a smaller batch is raised to it; nothing is lowered."""
    small = Network("s", 0.2, 100, {1: 20.0, 2: 19.0, 4: 30.0})
    large = Network("l", 0.3, 200, {1: 18.0, 2: 26.0, 8: 25.0})

    raised = monotone([large, small])

    assert [network.name for network in raised] == ["s", "l"]
    assert raised[0].latency_ms == {1: 20.0, 2: 20.0, 4: 30.0}
    assert raised[1].latency_ms == {1: 20.0, 2: 26.0, 8: 26.0}


def test_equal_sizes_are_ordered_by_accuracy() -> None:
    """Two precisions of one network have one input size; the less accurate counts as the smaller."""
    int8, fp32 = Network("int8", 0.28, 100, {1: 5.0}), Network("fp32", 0.3, 100, {1: 9.0})

    assert by_size([fp32, int8]) == (int8, fp32)
