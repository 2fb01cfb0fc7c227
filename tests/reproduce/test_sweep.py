"""Runs of the Table II box: its figures add up, and the table is that of the scenario file."""

import tomllib
from pathlib import Path

import pytest

from appliance.clock import NS_PER_S
from appliance.lab.outcome import Answer
from reproduce.edge_multiai.sweep import Cell, Share, Tally, bound_cell, cell_document, run_cell, share
from reproduce.edge_multiai.table2 import LOAD_MS_PER_MB, TABLE_II

SCENARIO = Path(__file__).parents[2] / "scenarios" / "edge-multiai-table2.toml"


def test_table_2_is_that_of_the_scenario_file() -> None:
    models = tomllib.loads(SCENARIO.read_text())["models"]
    assert {
        m["name"]: tuple((v["name"], v["size_mb"], v["accuracy"], v["latency_ms"]["gpu"]["1"]) for v in m["variants"])
        for m in models
    } == dict(TABLE_II)
    for variant in (v for m in models for v in m["variants"]):
        assert variant["load_ms"] == round(variant["size_mb"] * LOAD_MS_PER_MB)


def test_tally_figures_are_as_worked_by_hand() -> None:
    """a: 3 of 4 warm, one failed, mean accuracy 80; b: 1 of 2 warm, both answered, mean 90."""
    tally = Tally({"a": Share(4, 3, 3, 240.0, 1.5), "b": Share(2, 1, 2, 180.0, 1.0)}, 0.3)
    assert tally.cold == pytest.approx(2 / 6)
    assert tally.utility == pytest.approx(420 / 6)
    assert tally.error == pytest.approx(100 - 84)
    assert tally.normalised == pytest.approx(0.5)
    assert tally.robustness == pytest.approx((0.75 * 0.8 + 0.5 * 0.9) / 2)


def test_share_counts_answers_and_their_accuracy() -> None:
    answers = [
        Answer("a", "warm", 0, NS_PER_S, "x", 80.0),
        Answer("a", "cold", 1, NS_PER_S, "x", 90.0),
        Answer("a", "failed", 3, NS_PER_S),
    ]
    assert share(answers, 60.0, 100.0) == Share(3, 1, 2, 170.0, 0.5 + 0.75)


def test_cell_has_the_rules_of_the_paper_or_the_box_by_policy() -> None:
    """Windows as wide as Δ says for the paper's policies, and the box's own for `expected-utility`."""
    for policy, is_wide in (("iws-bfe", True), ("expected-utility", False)):
        residency = cell_document(Cell(policy, 400, 0.3, 3, count=8))["box"]["residency"]
        assert ("delta_share_max" in residency) is is_wide


def test_cell_with_ample_memory_and_perfect_forecast_is_warm() -> None:
    tally = run_cell(Cell("iws-bfe", 2500, 0.0, 1, count=8))
    assert sum(share.requests for share in tally.shares.values()) == 40
    assert tally.cold <= 0.05


def test_cell_is_reproducible_and_stays_below_its_reference() -> None:
    cell = Cell("bfe", 700, 0.3, 2, count=8)
    tally = run_cell(cell)
    assert run_cell(cell) == tally
    (bound,) = bound_cell(cell, [tally.cold])
    assert bound.cold_least <= tally.cold
    assert bound.utility_most >= tally.utility
    assert tally.utility < bound.utility_reached <= bound.utility_most
    assert bound.cold_least / 40 <= bound.cold_reached < tally.cold


def test_reference_depends_on_requests_and_not_on_predictions() -> None:
    assert bound_cell(Cell("bfe", 700, 0.3, 2, count=8), [0.1, 0.5]) == bound_cell(
        Cell("expected-utility", 700, 0.0, 2, count=8), [0.1, 0.5]
    )
