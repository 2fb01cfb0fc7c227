"""The paper's experiments: which runs they take, their estimates, and tables that come from the runs."""

import math

import pytest

from appliance.lab.clairvoyant.reference import Reference
from reproduce.edge_multiai.experiments import (
    DEVIATIONS,
    MEMORIES_MB,
    OURS,
    POLICIES,
    Estimate,
    all_cells,
    gap,
    gap_jobs,
    over_repetitions,
    partner_of,
)
from reproduce.edge_multiai.figures import figures
from reproduce.edge_multiai.sweep import Cell, Share, Tally
from reproduce.edge_multiai.table2 import TABLE_II


def tally(warm: int, accuracy: float = 80.0) -> Tally:
    """Ten requests an application, all answered."""
    return Tally({name: Share(10, warm, 10, 10 * accuracy, 5.0, 10 * accuracy) for name in TABLE_II}, 0.3, 1)


def test_sweep_is_whole_and_asks_for_every_run_once() -> None:
    cells = all_cells(2)
    assert len(cells) == len(set(cells))
    assert {Cell(p, m, d, r) for p in POLICIES for m in MEMORIES_MB for d in DEVIATIONS for r in (1, 2)} <= set(cells)


def test_confidence_interval_is_as_worked_by_hand() -> None:
    """Mean 2, standard deviation 1, t(2) = 4.303."""
    estimate = Estimate.of([1.0, 2.0, 3.0])
    assert estimate.mean == 2
    assert estimate.half == pytest.approx(4.303 / math.sqrt(3))
    assert Estimate.of([4.0]) == Estimate(4.0, 0.0)


def test_estimate_spreads_over_repetitions_alone() -> None:
    """Memories are averaged within a repetition: 50 and 100 %, and 70 and 80 %, are no spread."""
    results = {
        Cell("bfe", 400, 0.0, 1): tally(5),
        Cell("bfe", 700, 0.0, 1): tally(10),
        Cell("bfe", 400, 0.0, 2): tally(7),
        Cell("bfe", 700, 0.0, 2): tally(8),
    }
    found = over_repetitions(results, lambda t: t.warm, lambda c: True)
    assert found is not None
    assert found.mean == pytest.approx(0.75)
    assert found.half == pytest.approx(0)
    assert over_repetitions(results, lambda t: t.warm, lambda c: c.memory_mb == 1) is None


def test_gap_share_is_pooled_over_cells() -> None:
    ours, other = Cell(OURS, 400, 0.0, 1), Cell(OURS, 700, 0.0, 1)
    results = {
        ours: tally(8, 82),
        partner_of(ours): tally(6, 80),
        other: tally(9, 81),
        partner_of(other): tally(9, 81),
    }
    allowed = {cell: round(cold, 9) for job in gap_jobs(results) for cell, cold in job}
    assert allowed == {ours: 0.4, other: 0.1}
    found = gap(results, [(ours, Reference(0.1, 0.4, 84, 0, 83)), (other, Reference(0.1, 0.1, 85, 0, 82))])
    assert found.utility_share == pytest.approx((2 + 0) / (4 + 4))
    assert found.utility_reached == pytest.approx(3 + 1)
    assert found.cold_share == pytest.approx(0.2 / 0.3)


def test_cells_with_equal_requests_have_one_reference_job() -> None:
    cells = [Cell(p, m, d, r) for p in (OURS, "iws-bfe") for m in (400, 700) for d in (0.0, 0.3) for r in (1, 2)]
    jobs = gap_jobs({cell: tally(5) for cell in cells})
    assert [[(c.memory_mb, c.deviation, c.repetition) for c, _ in job] for job in jobs] == [
        [(m, 0.0, r), (m, 0.3, r)] for m in (400, 700) for r in (1, 2)
    ]


def test_figures_of_the_paper_become_tables_of_numbers() -> None:
    results = {cell: tally(5 if cell.policy == "none" else 10) for cell in all_cells(1)}
    tables = figures(results)
    assert [t.number for t in tables] == ["4", "5", "5, by memory", "6", "7", "8", "9", "10"]
    assert tables[0].found.startswith("+100% at degree 5")
    for table in tables:
        assert all(len(estimates) == len(table.columns) for _, estimates in table.rows)
        assert all(estimate is not None for _, estimates in table.rows for estimate in estimates)
        assert table.document()["paper"]
