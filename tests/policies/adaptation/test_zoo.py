"""The zoo filter and the monotone profile."""

from dataclasses import replace

from appliance.policies.adaptation.base import Network
from appliance.policies.adaptation.zoo import by_size, filtered, monotone
from tests.instances.adaptation import yolo


def test_filter_removes_larger_and_less_accurate_network() -> None:
    """640 px leaves against 608 px, as in the paper; nothing else does."""
    names = [network.name for network in filtered(reversed(yolo()))]

    assert "yolo-640" not in names
    assert names == [f"yolo-{side}" for side in range(128, 609, 32)]


def test_monotone_profile_raises_noisy_p99_over_networks_and_batches() -> None:
    """A latency below that of a smaller network or of a smaller batch is raised to it; nothing is lowered."""
    small = Network("s", 0.2, 100, {1: 20.0, 2: 19.0, 4: 30.0})
    large = Network("l", 0.3, 200, {1: 18.0, 2: 26.0, 8: 25.0})

    raised = monotone([large, small])

    assert [network.name for network in raised] == ["s", "l"]
    assert raised[0].latency_ms == {1: 20.0, 2: 20.0, 4: 30.0}
    assert raised[1].latency_ms == {1: 20.0, 2: 26.0, 8: 26.0}


def test_networks_of_equal_size_are_ordered_by_accuracy() -> None:
    """Two precisions of one network have one input size; the less accurate counts as the smaller."""
    int8, fp32 = Network("int8", 0.28, 100, {1: 5.0}), Network("fp32", 0.3, 100, {1: 9.0})

    assert by_size([fp32, int8]) == (int8, fp32)


FP32, INT8 = Network("fp32", 0.30, 100, {1: 20.0, 2: 34.0}), Network("int8", 0.28, 100, {1: 9.0, 2: 14.0})


def test_monotone_profile_never_raises_between_precisions_of_equal_size() -> None:
    """fp32 is more accurate and, without fast int8 on a processor, quicker: nothing of it is raised to the int8's 30
    ms.
    """
    slow = replace(INT8, latency_ms={1: 30.0, 2: 50.0})

    assert {network.name: network.latency_ms for network in monotone([FP32, slow])} == {
        "fp32": {1: 20.0, 2: 34.0},
        "int8": {1: 30.0, 2: 50.0},
    }


def test_monotone_profile_raises_to_the_quickest_network_of_a_smaller_size() -> None:
    """The int8 of 160 px at 12 ms is slower than the int8 of 128 px and stays; at a noisy 8 ms it is raised to 9,
    and not to the fp32's 20.
    """
    larger = Network("int8-160", 0.31, 200, {1: 12.0, 2: 13.0})

    assert monotone([FP32, INT8, larger])[-1].latency_ms == {1: 12.0, 2: 14.0}
    assert monotone([FP32, INT8, replace(larger, latency_ms={1: 8.0})])[-1].latency_ms == {1: 9.0}


def test_filter_keeps_larger_and_less_accurate_network_that_is_quicker() -> None:
    """The int8 of 160 px, 0.29, beside the fp32 of 128 px, 0.30: it takes 12 ms where that takes 20.

    At 25 ms it leaves.
    """
    larger = Network("int8-160", 0.29, 200, {1: 12.0, 2: 18.0})

    assert filtered([FP32, INT8, larger]) == (INT8, FP32, larger)
    assert filtered([FP32, INT8, replace(larger, latency_ms={1: 25.0, 2: 40.0})]) == (INT8, FP32)


def test_filter_removes_precision_neither_quicker_nor_more_accurate() -> None:
    """Of two precisions of one size the one that loses in both leaves; as accurate and quicker, int8 makes fp32
    needless; alike, the first name stays.
    """
    slow = replace(INT8, latency_ms={1: 21.0, 2: 34.0})

    assert filtered([slow, FP32]) == (FP32,)
    assert filtered([replace(INT8, accuracy=0.30), FP32]) == (replace(INT8, accuracy=0.30),)
    assert filtered([replace(FP32, name="twin"), FP32]) == (FP32,)
    assert filtered([INT8, FP32]) == (INT8, FP32)
