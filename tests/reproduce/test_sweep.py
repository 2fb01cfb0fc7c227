"""Runs of the Table II box: their figures add up, by the rules of their policy."""

import pytest

from appliance.domain.robustness import Served
from reproduce.edge_multiai.experiments import numbers_of
from reproduce.edge_multiai.sweep import Cell, bound_cell, cell_document, run_cell
from reproduce.edge_multiai.table2 import LOAD_MS_PER_MB, MODELS, TABLE_II


def test_table_2_loads_take_the_stated_time_per_megabyte() -> None:
    for variant in (variant for model in MODELS for variant in model["variants"]):
        assert variant["load_ms"] == round(variant["size_mb"] * LOAD_MS_PER_MB)
    assert sum(variants[-1][1] for variants in TABLE_II.values()) == pytest.approx(560.5)


def test_run_figures_are_as_worked_by_hand() -> None:
    """a: 3 of 4 warm, one failed, mean accuracy 80; b: 1 of 2 warm, both answered, mean 90."""
    served = {"a": Served(4, 3, 0, 3, 240.0, 60.0, 100.0), "b": Served(2, 1, 1, 2, 180.0, 80.0, 100.0)}
    found = numbers_of(served, 0.3)
    assert found["cold"] == pytest.approx(100 * 2 / 6)
    assert found["utility"] == pytest.approx(420 / 6)
    assert found["error"] == pytest.approx(100 - 84)
    assert found["normalised"] == pytest.approx(50)
    assert found["robustness"] == pytest.approx((0.75 * 0.8 + 0.5 * 0.9) / 2)
    assert (found["b/cold"], found["b/accuracy"], found["deviation"]) == (50, 90, 0.3)


def test_run_without_answers_lacks_their_accuracy() -> None:
    found = numbers_of({"a": Served(4, 0, 0, 0, 0.0)}, 0.3)
    assert (found["cold"], found["error"], found["utility"]) == (100, 100, 0)
    assert not {"normalised", "a/accuracy"} & found.keys()


def test_cell_has_the_rules_of_the_paper_or_the_box_by_policy() -> None:
    """Windows as wide as Δ says for the paper's policies, and the box's own for `expected-utility`."""
    for policy, is_wide in (("iws-bfe", True), ("expected-utility", False)):
        residency = cell_document(Cell(policy, 400, 0.3, 3, count=8))["box"]["residency"]
        assert ("delta_share_max" in residency) is is_wide


def test_cell_with_ample_memory_and_perfect_forecast_is_warm() -> None:
    cell = Cell("iws-bfe", 2500, 0.0, 1, count=8)
    served = run_cell(cell)
    assert sum(one.requests for one in served.values()) == 40
    assert numbers_of(served, 0.0)["cold"] <= 5


def test_cell_is_reproducible_and_stays_below_its_reference() -> None:
    cell = Cell("bfe", 700, 0.3, 2, count=8)
    served = run_cell(cell)
    assert run_cell(cell) == served
    found = numbers_of(served, 0.3)
    cold, utility = found["cold"] / 100, found["utility"]
    (bound,) = bound_cell(cell, [cold])
    assert bound.cold_least <= cold
    assert bound.utility_most >= utility
    assert utility < bound.utility_reached <= bound.utility_most
    assert bound.cold_least / 40 <= bound.cold_reached < cold


def test_reference_depends_on_requests_and_not_on_predictions() -> None:
    assert bound_cell(Cell("bfe", 700, 0.3, 2, count=8), [0.1, 0.5]) == bound_cell(
        Cell("expected-utility", 700, 0.0, 2, count=8), [0.1, 0.5]
    )
