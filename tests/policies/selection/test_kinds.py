"""On which kind of processor a content serves."""

from appliance.policies.selection.kinds import KindOption, kind_reason, serving_kind

GB = 10**9
FIRST = KindOption("cpu", 24.0, 3.0, 30_000_000)


def test_quickest_processor_kind_serves() -> None:
    """18 ms against 24: worth 60 MB of 4 GB."""
    assert serving_kind([FIRST, KindOption("openvino", 18.0, 200.0, 90_000_000)], 4 * GB) == "openvino"


def test_processor_kind_faster_only_within_the_noise_is_not_chosen() -> None:
    """22.5 ms is no noticeable gain over 24."""
    assert serving_kind([FIRST, KindOption("openvino", 22.5, 3.0, 30_000_000)], 4 * GB) == "cpu"


def test_processor_kind_pays_for_its_memory() -> None:
    """On a box with 200 MB the others would lack what it takes."""
    assert serving_kind([FIRST, KindOption("openvino", 18.0, 200.0, 120_000_000)], GB // 5) == "cpu"


def test_processor_kind_pays_for_its_load_time() -> None:
    """A quick network that takes half a second to come back."""
    quick = KindOption("cpu", 4.0, 3.0, 10_000_000)
    assert serving_kind([quick, KindOption("openvino", 3.0, 500.0, 10_000_000)], 4 * GB) == "cpu"


def test_processor_kind_gain_by_batches_counts_half() -> None:
    """2.3 ms alone and 1.5 an item of a batch, against 2.1 and no gain."""
    shares = KindOption("openvino", 2.3, 3.0, 30_000_000, busy_ms=1.5)
    assert serving_kind([KindOption("cpu", 2.3, 3.0, 30_000_000), shares], 4 * GB) == "openvino"
    assert serving_kind([KindOption("cpu", 2.0, 3.0, 30_000_000), shares], 4 * GB) == "cpu"


def test_processor_kind_slowdown_beside_other_runs_counts_half() -> None:
    """16 ms alone and 30 beside another run, against 20 either way."""
    alone = KindOption("openvino", 16.0, 3.0, 30_000_000, busy_ms=30.0)
    assert serving_kind([KindOption("cpu", 20.0, 3.0, 30_000_000), alone], 4 * GB) == "cpu"
    assert serving_kind([alone, KindOption("cpu", 20.0, 3.0, 30_000_000)], 4 * GB) == "cpu"


def test_processor_kind_choice_depends_on_no_order_of_options() -> None:
    better, best = KindOption("a", 15.0, 3.0, GB // 100), KindOption("b", 12.0, 3.0, GB // 100)
    assert serving_kind([FIRST, better, best], 4 * GB) == serving_kind([FIRST, best, better], 4 * GB) == "b"
    assert serving_kind([FIRST], GB) == "cpu"


def test_processor_kind_reason_names_the_cost_of_each_kind() -> None:
    """And why a little less is not enough; nothing where there is nothing to choose."""
    assert kind_reason([FIRST], GB) == ""
    quick, near, slow = (KindOption(kind, ms, 0.0, 0) for kind, ms in (("a", 12.0), ("b", 22.5), ("c", 30.0)))
    first = KindOption("cpu", 24.0, 0.0, 0)
    told = "loads and memory counted in"
    assert kind_reason([first, quick, slow], GB) == f"a request costs 12 ms on a and 24 on cpu and 30 on c, {told}"
    assert kind_reason([first, slow], GB) == f"a request costs 24 ms on cpu and 30 on c, {told}"
    near_told = kind_reason([first, near], GB)
    assert near_told == f"a request costs 24 ms on cpu and 22.5 on b, {told}; less by under a tenth does not count"
