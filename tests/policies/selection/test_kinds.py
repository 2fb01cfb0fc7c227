"""On which kind of processor a content serves."""

from appliance.policies.selection.kinds import KindOption, kind_reason, serving_kind

GB = 10**9
FIRST = KindOption("cpu", 24.0, 3.0, 30_000_000)


def test_the_quickest_kind_serves() -> None:
    """18 ms against 24: worth 60 MB of 4 GB."""
    assert serving_kind([FIRST, KindOption("openvino", 18.0, 200.0, 90_000_000)], 4 * GB) == "openvino"


def test_noise_changes_nothing() -> None:
    """22.5 ms is no noticeable gain over 24."""
    assert serving_kind([FIRST, KindOption("openvino", 22.5, 3.0, 30_000_000)], 4 * GB) == "cpu"


def test_memory_has_its_price() -> None:
    """On a box with 200 MB the others would lack what it takes."""
    assert serving_kind([FIRST, KindOption("openvino", 18.0, 200.0, 120_000_000)], GB // 5) == "cpu"


def test_loads_have_their_price() -> None:
    """A quick network that takes half a second to come back."""
    quick = KindOption("cpu", 4.0, 3.0, 10_000_000)
    assert serving_kind([quick, KindOption("openvino", 3.0, 500.0, 10_000_000)], 4 * GB) == "cpu"


def test_what_batches_gain_counts_half() -> None:
    """2.3 ms alone and 1.5 an item of a batch, against 2.1 and no gain."""
    shares = KindOption("openvino", 2.3, 3.0, 30_000_000, busy_ms=1.5)
    assert serving_kind([KindOption("cpu", 2.3, 3.0, 30_000_000), shares], 4 * GB) == "openvino"
    assert serving_kind([KindOption("cpu", 2.0, 3.0, 30_000_000), shares], 4 * GB) == "cpu"


def test_what_others_at_work_cost_counts_half() -> None:
    """16 ms alone and 30 beside another run, against 20 either way."""
    alone = KindOption("openvino", 16.0, 3.0, 30_000_000, busy_ms=30.0)
    assert serving_kind([KindOption("cpu", 20.0, 3.0, 30_000_000), alone], 4 * GB) == "cpu"
    assert serving_kind([alone, KindOption("cpu", 20.0, 3.0, 30_000_000)], 4 * GB) == "cpu"


def test_the_order_of_the_others_says_nothing() -> None:
    better, best = KindOption("a", 15.0, 3.0, GB // 100), KindOption("b", 12.0, 3.0, GB // 100)
    assert serving_kind([FIRST, better, best], 4 * GB) == serving_kind([FIRST, best, better], 4 * GB) == "b"
    assert serving_kind([FIRST], GB) == "cpu"


def test_the_reason_names_what_each_costs() -> None:
    """And why a little less is not enough; nothing where there is nothing to choose."""
    assert kind_reason([FIRST], GB) == ""
    quick, near, slow = (KindOption(kind, ms, 0.0, 0) for kind, ms in (("a", 12.0), ("b", 22.5), ("c", 30.0)))
    first = KindOption("cpu", 24.0, 0.0, 0)
    told = "loads and memory counted in"
    assert kind_reason([first, quick, slow], GB) == f"a request costs 12 ms on a and 24 on cpu and 30 on c, {told}"
    assert kind_reason([first, slow], GB) == f"a request costs 24 ms on cpu and 30 on c, {told}"
    near_told = kind_reason([first, near], GB)
    assert near_told == f"a request costs 24 ms on cpu and 22.5 on b, {told}; less by under a tenth does not count"
