"""How fast a link is over time."""

import csv
import math
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.clock import NS_PER_S
from appliance.lab.links.trace import MEASURED, Trace, drawn, of_rows, read_trace, stairs, steady
from appliance.lab.problems.base import Malformed

S = NS_PER_S
SHARED = Path(__file__).parents[4] / "shared" / "data" / "jellyfish"

steps = st.lists(
    st.tuples(st.integers(S // 10, 5 * S), st.sampled_from([0.0, 1e5, 3e6, 1e9])), min_size=1, max_size=6
).filter(lambda found: any(rate for _, rate in found))


def trace_of(found: list[tuple[int, float]]) -> Trace:
    begins = [sum(length for length, _ in found[:at]) for at in range(len(found))]
    return Trace(tuple(begins), tuple(rate for _, rate in found), sum(length for length, _ in found))


def by_steps(trace: Trace, begin_ns: int, bits: float) -> float:
    """The same, the long way."""
    at_ns = float(begin_ns)
    while True:
        inside = at_ns % trace.period_ns
        step = max(at for at, begin in enumerate(trace.begins_ns) if begin <= inside)
        ends = (*trace.begins_ns[1:], trace.period_ns)[step]
        room = trace.rates_bps[step] * (ends - inside) / S
        if room >= bits:
            return at_ns + bits / trace.rates_bps[step] * S if trace.rates_bps[step] else at_ns
        bits -= room
        at_ns += ends - inside


@given(found=steps, begin_ns=st.integers(0, 20 * S), bits=st.floats(1, 1e6))
def test_trace_passes_bits_as_its_rates_say(found: list[tuple[int, float]], begin_ns: int, bits: float) -> None:
    trace = trace_of(found)
    assert trace.through_ns(begin_ns, bits) == pytest.approx(by_steps(trace, begin_ns, bits), rel=1e-6, abs=100)


def test_trace_of_three_rates_passes_bits_as_worked_by_hand() -> None:
    """2 Mbit/s for a second, nothing for one, 1 Mbit/s for one."""
    trace = of_rows([(0, 2), (1, 0), (2, 1)])
    assert trace.period_ns == 3 * S
    assert trace.through_ns(0, 1e6) == S // 2
    assert trace.through_ns(S // 2, 2e6) == 3 * S  # half a second at 2, a pause, a second at 1
    assert trace.through_ns(S + 5, 1e5) == 2 * S + S // 10
    assert trace.through_ns(0, 3e6 * 4 + 1e6) == 12 * S + S // 2
    assert [trace.rate_bps(at) for at in (0, S, 2 * S, 3 * S)] == [2e6, 0, 1e6, 2e6]


@given(found=steps, start_ns=st.integers(0, 30 * S), bits=st.floats(1, 1e6))
def test_trace_begun_in_the_middle_passes_bits_alike(
    found: list[tuple[int, float]], start_ns: int, bits: float
) -> None:
    trace = trace_of(found)
    moved = trace.since(start_ns)
    assert moved.begins_ns[0] == 0
    assert list(moved.begins_ns) == sorted(set(moved.begins_ns))
    begun = trace.through_ns(start_ns % trace.period_ns, bits) - start_ns % trace.period_ns
    assert moved.through_ns(0, bits) == pytest.approx(begun, rel=1e-6, abs=100)


def test_trace_file_is_read_from_its_first_time(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("time_s,uplink_mbps\n10,4\n12,8\n")
    trace = read_trace(path)
    assert (trace.begins_ns, trace.rates_bps, trace.period_ns) == ((0, 2 * S), (4e6, 8e6), 4 * S)
    assert trace.times(0.5).rates_bps == (2e6, 4e6)
    assert steady(3).rate_bps(123) == 3e6


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a,b\n1,2\n", "needs the columns"),
        ("time_s,uplink_mbps\n", "has no rows"),
        ("time_s,uplink_mbps\n0,0\n", "lets nothing through"),
        ("time_s,uplink_mbps\n1,1\n1,2\n", "in the order of time"),
        ("time_s,uplink_mbps\n0,fast\n", "line 2: 'fast' is no number"),
        ("time_s,uplink_mbps\n0,-1\n", "line 2: '-1' is no number"),
    ],
)
def test_malformed_trace_file_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(Malformed, match=why):
        read_trace(path)
    with pytest.raises(Malformed, match="cannot be read"):
        read_trace(tmp_path / "absent.csv")


@pytest.mark.parametrize("like", sorted(MEASURED))
def test_drawn_trace_has_the_statistics_of_the_measured_trace(like: str) -> None:
    found = MEASURED[like]
    rates = [rate / 1e6 for rate in drawn(like, 3, 5000).rates_bps]
    assert statistics.mean(rates) == pytest.approx(found.mean, rel=0.05)
    assert statistics.stdev(rates) == pytest.approx(found.sd, rel=0.15)
    assert statistics.correlation(rates[1:], rates[:-1]) == pytest.approx(found.correlation, abs=0.06)
    assert found.least <= min(rates) <= max(rates) <= found.most
    assert drawn(like, 3) == drawn(like, 3) != drawn(like, 4)


@pytest.mark.skipif(
    not SHARED.exists(), reason="the measured traces of Jellyfish are not beside the checkout: ../shared/data/jellyfish"
)
def test_measured_traces_have_the_stated_statistics() -> None:
    for name, like in [("lte_upload_trace", "lte"), ("wifi_trace", "wifi"), ("synthetic_trace", None)]:
        with (SHARED / f"{name}.csv").open() as file:
            rows = [(float(row["t_s"]), float(row["bandwidth_mbps"])) for row in csv.DictReader(file)]
        trace = of_rows(rows)
        if like is None:
            assert trace == stairs()
            continue
        rates = [rate / 1e6 for rate in trace.rates_bps]
        assert math.isclose(statistics.mean(rates), MEASURED[like].mean, rel_tol=0.01)
        assert math.isclose(statistics.stdev(rates), MEASURED[like].sd, rel_tol=0.01)
