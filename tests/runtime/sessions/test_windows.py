"""In which stretches of time promises were kept."""

import pytest

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.runtime.sessions.windows import ACCURACY_NS, LATENCY_NS, AccuracyWindows, LatencyWindows


def test_latency_window_allows_one_late_frame_of_a_hundred() -> None:
    """150 frames, one late: kept; two: not. A window in which nothing came does not count."""
    windows = LatencyWindows()
    windows.begin(0)
    for misses in (1, 2):
        for frame in range(150):
            windows.ended((windows.windows * LATENCY_NS) + frame * 66 * NS_PER_MS, in_time=frame >= misses)
        windows.roll((windows.windows + 1) * LATENCY_NS)
    assert (windows.windows, windows.kept) == (2, 1)
    windows.roll(5 * LATENCY_NS)
    assert windows.windows == 2


def test_latency_window_not_served_throughout_does_not_count() -> None:
    """The link went: the window under way is dropped."""
    windows = LatencyWindows()
    windows.begin(0)
    windows.ended(NS_PER_S, in_time=False)
    windows.stop()
    windows.begin(8 * NS_PER_S)
    windows.ended(9 * NS_PER_S, in_time=True)
    windows.roll(17 * NS_PER_S)
    assert windows.windows == 0
    windows.roll(18 * NS_PER_S)
    assert (windows.windows, windows.kept) == (1, 1)


def test_windows_of_removed_session_are_broken_until_it_is_served() -> None:
    """The window under way, and two whole ones; the one that was not over when it was served again does not count."""
    latency, accuracy = LatencyWindows(), AccuracyWindows()
    latency.begin(0)
    latency.ended(NS_PER_S, in_time=True)
    latency.remove(4 * NS_PER_S)
    assert (latency.windows, latency.kept) == (1, 0)
    latency.roll(25 * NS_PER_S)
    latency.begin(30 * NS_PER_S)
    latency.ended(31 * NS_PER_S, in_time=True)
    latency.roll(40 * NS_PER_S)
    assert (latency.windows, latency.kept) == (4, 1)
    accuracy.begin(0)
    accuracy.remove(NS_PER_S // 2)
    accuracy.roll(3 * NS_PER_S, 30.0, lambda stride, _: 0.0, 0.05)
    assert (accuracy.windows, accuracy.kept) == (3, 0)
    accuracy.stop()
    accuracy.roll(9 * NS_PER_S, 30.0, lambda stride, _: 0.0, 0.05)
    assert accuracy.windows == 3


def test_accuracy_window_averages_age_of_results_shown() -> None:
    """Results every 6 frames at 60 fps, 5 frames old when they come: strides 5 ... 10, 7.5 on average (AR-01). The
    promise is kept that allows as much, and one that allows less is not.
    """
    frame_ns = NS_PER_S / 60
    for drop_max, kept in ((0.0301, 3), (0.0299, 0)):
        windows = AccuracyWindows()
        windows.begin(0)
        for result in range(-12, 200):
            windows.shown(int(result * 6 * frame_ns), int((result * 6 + 5) * frame_ns))
        closed = windows.roll(3 * ACCURACY_NS, 60.0, lambda stride, _: 0.004 * stride, drop_max)
        assert [stride for stride, _ in closed] == pytest.approx([7.5] * 3, abs=0.01)
        assert (windows.windows, windows.kept) == (3, kept)
        assert windows.last_drop == pytest.approx(0.03, abs=0.0001)


def test_accuracy_window_without_new_results_breaks_promise() -> None:
    """The age of the last result grows on."""
    windows = AccuracyWindows()
    windows.begin(0)
    windows.shown(0, 0)
    windows.roll(4 * ACCURACY_NS, 30.0, lambda stride, _: 0.002 * stride, 0.05)
    assert (windows.windows, windows.kept) == (4, 1)


def test_accuracy_windows_count_from_first_result_on() -> None:
    """A window without anything to show from its start on is none."""
    windows = AccuracyWindows()
    windows.begin(0)
    windows.shown(NS_PER_S // 2, NS_PER_S // 2 + 1)
    windows.roll(2 * ACCURACY_NS, 30.0, lambda stride, _: 0.0, 0.05)
    assert windows.windows == 1


def test_accuracy_window_uses_drop_curve_of_each_variant_shown() -> None:
    """For half a window results of one variant are shown, then of another, both 10 ms old at first and 510 ms at last:
    260 ms on average, 7.8 frames at 30 a second, less half a frame.
    """
    windows = AccuracyWindows()
    windows.begin(0)
    windows.shown(-NS_PER_S // 100, 0, "large")
    windows.shown(NS_PER_S * 49 // 100, NS_PER_S // 2, "small")
    seen: dict[str, float] = {}

    def drop_of(stride: float, variant: str) -> float:
        seen[variant] = stride
        return {"large": 0.002 * stride, "small": 0.05 + 0.01 * stride}[variant]

    ((stride, drop),) = windows.roll(ACCURACY_NS, 30.0, drop_of, 1.0)
    assert seen == pytest.approx({"large": 7.3, "small": 7.3})
    assert stride == pytest.approx(7.3)
    assert drop == windows.last_drop
    assert windows.last_drop == pytest.approx((0.002 * 7.3 + 0.05 + 0.01 * 7.3) / 2)
