"""Figures of sessions against cases computed by hand."""

import pytest

from appliance.clock import NS_PER_MS, NS_PER_S
from appliance.domain.session import AccuracyPromise
from appliance.runtime.sessions.figures import SessionFigures
from tests.fakes.clock import story
from tests.fakes.processor import Cost
from tests.runtime.sessions.fleet import box_with


def test_window_drops_and_estimates_averaged_give_drop_and_error() -> None:
    """Drops of 0.02 and 0.04 and 0.03; estimated 0.03 and 0.035 for the latter two: 0.03, and (-0.01 + 0.005) / 2."""
    figures = SessionFigures()
    assert figures.drop.value is None
    assert figures.drop_error.value is None
    figures.window(0.02)
    figures.estimated_drop = 0.03
    figures.window(0.04)
    figures.estimated_drop = 0.035
    figures.window(0.03)
    assert figures.drop.value == pytest.approx(0.03)
    assert figures.drop_error.value == pytest.approx(-0.0025)


def test_runs_planned_and_unplanned_give_mean_batch_and_start_difference() -> None:
    """Rows 2, 3, 1: 2. The planned ones begin 4 ms late and 6 ms early: -1 ms on average, 6 at most."""
    figures = SessionFigures()
    figures.run(2, 104 * NS_PER_MS, 100 * NS_PER_MS)
    figures.run(3, 194 * NS_PER_MS, 200 * NS_PER_MS)
    figures.run(1, 300 * NS_PER_MS, None)
    assert figures.batch_rows.value == 2.0
    assert figures.start_ms.value == -1.0
    assert figures.start_ms_max == 6.0


def test_utilisation_counts_busy_time_since_session_began() -> None:
    """Of 2 workers in 10 s, 8 s were busy: 8 / 20."""
    figures = SessionFigures()
    assert figures.utilisation(1.0, NS_PER_S, 1) is None
    figures.busy_before = 500.0, 10 * NS_PER_S
    assert figures.utilisation(500.0, 10 * NS_PER_S, 2) is None
    assert figures.utilisation(8_500.0, 20 * NS_PER_S, 2) == pytest.approx(0.4)


def test_agreement_with_original_is_weighted_by_frames_answered() -> None:
    """30 frames of the original, 10 that agree to 0.8, 5 of a variant without a figure: (30 + 8) / 40."""
    figures = SessionFigures()
    figures.in_time.update({"fp32": 30, "small": 10, "other": 5})
    mean = figures.against_original({"fp32": 1.0, "small": 0.8})
    assert mean.value == pytest.approx(0.95)
    assert mean.count == 40


@story
async def test_sessions_planned_together_show_batch_start_and_estimate() -> None:
    """Two alike devices run in batches of 2. The box is idle else: drop within the promise, estimate near the drop,
    workers busy for less than all of the time. A batch with all frames in begins before its planned start.
    """
    async with box_with({640: Cost(run_ms=20.0, run_ms_by_batch={1: 20.0, 2: 22.0, 4: 26.0})}) as (fleet, gate):
        lives = await fleet.cameras(2, gate, AccuracyPromise(0.05), mbps=40.0, drop_rate=0.004)
        await fleet.pass_s(20)
        busy_ms = fleet.bench.engine.run_totals()[1]
        for live in lives:
            figures = live.figures
            assert figures.drop.count == live.windows > 10
            assert figures.drop.value is not None
            assert figures.drop.value <= 0.05
            assert figures.drop_error.value == pytest.approx(0.0, abs=0.01)
            assert figures.batch_rows.value is not None
            assert 1.5 < figures.batch_rows.value <= 2.0
            assert figures.start_ms.count > 0
            assert figures.start_ms.value is not None
            assert -30.0 < figures.start_ms.value <= 2.0
            assert sum(figures.in_time.values()) == live.counts.answered
            utilisation = figures.utilisation(busy_ms, fleet.clock.now_ns(), 1)
            assert utilisation is not None
            assert 0.01 < utilisation < 0.9
