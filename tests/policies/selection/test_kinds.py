"""On which kind of processor a content serves."""

import pytest

from appliance.policies.selection.kinds import KindOption, kind_reason, serving_kind

GB = 10**9
FIRST = KindOption("cpu", 24.0, 3.0, 30_000_000)


def cpu(run_ms: float) -> KindOption:
    return KindOption("cpu", run_ms, 3.0, 30_000_000)


def other(run_ms: float, load_ms: float = 3.0, resident_mb: int = 30, busy_ms: float | None = None) -> KindOption:
    return KindOption("openvino", run_ms, load_ms, resident_mb * 1_000_000, busy_ms)


@pytest.mark.parametrize(
    ("options", "memory_bytes", "serves"),
    [
        pytest.param([FIRST, other(18.0, 200.0, 90)], 4 * GB, "openvino", id="quicker: worth 60 MB of 4 GB"),
        pytest.param([FIRST, other(18.0, 200.0, 120)], GB // 5, "cpu", id="quicker: takes what others lack of 200 MB"),
        pytest.param([FIRST, other(22.5)], 4 * GB, "cpu", id="quicker only within the noise"),
        pytest.param([cpu(4.0), other(3.0, 500.0)], 4 * GB, "cpu", id="quicker: takes half a second to come back"),
        pytest.param([cpu(2.3), other(2.3, busy_ms=1.5)], 4 * GB, "openvino", id="gain by batches counts half"),
        pytest.param([cpu(2.0), other(2.3, busy_ms=1.5)], 4 * GB, "cpu", id="too little gain by batches"),
        pytest.param([cpu(20.0), other(16.0, busy_ms=30.0)], 4 * GB, "cpu", id="slower beside other runs"),
        pytest.param([other(16.0, busy_ms=30.0), cpu(20.0)], 4 * GB, "cpu", id="first one slower beside other runs"),
    ],
)
def test_processor_kind_that_a_request_costs_least_serves(
    options: list[KindOption], memory_bytes: int, serves: str
) -> None:
    assert serving_kind(options, memory_bytes) == serves


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
