"""Edge-MultiAI's runs, what the paper states beside their numbers, its figures, and the way to the clairvoyant."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from appliance.domain.robustness import Served
from appliance.lab.clairvoyant.reference import Reference
from reproduce.claims import Claim, Estimate, Numbers, estimate, named
from reproduce.edge_multiai.clairvoyant import gap, gap_jobs, gap_text
from reproduce.edge_multiai.experiments import (
    DEVIATIONS,
    EXPERIMENTS,
    MEMORIES_MB,
    OURS,
    PAPER,
    POLICIES,
    cells,
    figures,
    mean,
    name_of,
    nearest_memory_mb,
    numbers_of,
    statements,
)
from reproduce.edge_multiai.sweep import Cell
from reproduce.edge_multiai.table2 import TABLE_II
from reproduce.run import stated_text

WARM = {"none": 4, "lfe": 5, "bfe": 5, "ws-bfe": 8, "iws-bfe": 9, "expected-utility": 9}


def run(warm: int, normalised: float = 0.5, deviation: float = 0.3) -> Numbers:
    """Ten requests an application, all answered at 80 %."""
    least = 80 - 20 * normalised
    return numbers_of({name: Served(10, warm, 0, 10, 800.0, least, least + 20) for name in TABLE_II}, deviation)


def usual(cell: Cell) -> Numbers:
    """Colder where memory is short; lfe is more accurate than the others from 50 % on; α = 0.5 is a little better."""
    return run(
        WARM[cell.policy] - (cell.memory_mb == MEMORIES_MB[0]) + (cell.alpha == 0.5 and cell.policy == "iws-bfe"),
        0.6 if cell.policy == "lfe" and cell.deviation >= 0.5 else 0.5,
        cell.deviation,
    )


def repetition(made: Callable[[Cell], Numbers] = usual) -> Numbers:
    """The numbers of one, from made-up runs."""
    runs = [named(name, made(cell)) for name, cell in cells().items()]
    return {name: value for run in runs for name, value in run.items()}


def by_what(found: list[Claim]) -> dict[str, Estimate]:
    return {one.what: one.ours for one in found if one.ours}


def test_sweep_has_every_policy_at_every_memory_and_deviation() -> None:
    swept = {name_of(p, m, d) for p in POLICIES for m in MEMORIES_MB for d in DEVIATIONS}
    assert swept < EXPERIMENTS.keys()
    assert len({replace(cell, repetition=1) for cell in cells().values()}) == len(EXPERIMENTS)


def test_statement_numbers_are_as_worked_by_hand() -> None:
    """Warm at 400 MB 0.3 (none) and 0.8 (iws-bfe), elsewhere 0.4 and 0.9: means 0.38 and 0.88."""
    claims = statements([repetition(), repetition()])
    found = by_what(claims)
    gain = found["warm starts of iws-bfe above those of none, %"]
    assert gain.mean == pytest.approx(100 * (0.88 / 0.38 - 1))
    assert gain.half == pytest.approx(0)
    assert found["cold starts of iws-bfe below ws-bfe, %"].mean == pytest.approx(100 * (1 - 12 / 22))
    assert found["least deviation with lfe or bfe more accurate than iws-bfe, %"].mean == 50
    assert found["best α for iws-bfe (cold + error least)"].mean == 0.5
    assert found["R (eq. 4) of none"].mean == pytest.approx(0.38 * 0.8)
    assert found["worst forecasts: deviation reached, nats"].mean == pytest.approx(0.9)
    holds = {one.what: one.holds for one in claims}
    assert holds["cold starts of ws-bfe below lfe, %"] is False
    assert holds["cold starts of iws-bfe below ws-bfe, %"] is True
    assert holds["cold starts of iws-bfe below lfe and bfe, %"] is None
    assert "| NO |" in stated_text(claims, PAPER.remark, 2)
    assert len(holds) == len(claims)


def test_nearest_memory_is_that_of_the_papers_cold_starts() -> None:
    """Only at 700 MB are the policies as cold as the paper has them."""
    papers = {"lfe": 4, "bfe": 5, "ws-bfe": 8, "iws-bfe": 8}
    numbers = repetition(lambda cell: run(papers.get(cell.policy, 9) if cell.memory_mb == 700 else 9))
    assert nearest_memory_mb([numbers]) == 700
    (cold,) = (one for one in statements([numbers]) if one.what == "cold starts of lfe at 30 %, %")
    document = cold.document()
    assert (document["ours"], document["ours_at_nearest_memory"]) == ([20, 0], [60, 0])


def test_fairness_is_1_for_equal_shares_and_a_fifth_for_one_of_five() -> None:
    """Jain's index: 1 for equal shares, 1/5 where one of five has everything."""
    first = numbers_of({name: Served(10, 10 * (at == 0), 0, 10, 800.0) for at, name in enumerate(TABLE_II)}, 0.3)
    found = by_what(statements([repetition(lambda cell: first if cell.policy == "none" else usual(cell))]))
    index = "fairness of {} at 30 % (Jain's index of warm shares)"
    assert found[index.format("none")].mean == pytest.approx(0.2)
    assert found[index.format("bfe")].mean == pytest.approx(1)


def test_confidence_interval_is_as_worked_by_hand() -> None:
    """Mean 2, standard deviation 1, t(2) = 4.303."""
    found = Estimate.of([1.0, 2.0, 3.0])
    assert found.mean == 2
    assert found.half == pytest.approx(4.303 / math.sqrt(3))
    assert Estimate.of([4.0]) == Estimate(4.0, 0.0)


def test_estimate_spreads_over_repetitions_alone() -> None:
    """Memories are averaged within a repetition: 50 and 100 %, and 70 and 80 %, are no spread."""
    repetitions = [{"a/warm": 0.5, "b/warm": 1.0}, {"a/warm": 0.7, "b/warm": 0.8}]
    found = estimate(repetitions, mean("warm", "ab"))
    assert found is not None
    assert found.pair() == [0.75, 0]
    assert estimate(repetitions, mean("warm", "c")) is None


def test_gap_share_is_pooled_over_cells() -> None:
    """One job a memory and repetition; each cell may be as cold as the colder of the two policies."""
    numbers = repetition(lambda cell: run(8 if cell.policy == OURS else 6))
    jobs = gap_jobs([numbers, numbers])
    assert [(len(job), {(cell.memory_mb, cell.repetition) for cell, _ in job}) for job in jobs] == [
        (len(DEVIATIONS), {(mb, number)}) for number in (1, 2) for mb in MEMORIES_MB
    ]
    assert {round(cold, 9) for job in jobs for _, cold in job} == {0.4}
    numbers = {**numbers, f"{name_of(OURS, 400, 0.0)}/utility": 82.0, f"{name_of(OURS, 700, 0.0)}/cold": 10.0}
    references = [
        (Cell(OURS, 400, 0.0, 1), Reference(0.1, 0.4, 84, 0, 83)),
        (Cell(OURS, 700, 0.0, 1), Reference(0.1, 0.1, 85, 0, 82)),
    ]
    found = gap([numbers], references)
    assert found["runs"] == 2
    assert found["utility_gap"] == pytest.approx((4 + 5) / 2)
    assert found["utility_share_closed"] == pytest.approx((2 + 0) / (4 + 5))
    assert found["utility_gap_to_plan"] == pytest.approx((3 + 2) / 2)
    assert found["cold_share_closed"] == pytest.approx((0.2 + 0.3) / (0.3 + 0.3))
    assert "22%" in gap_text(found)


def test_figures_of_the_paper_become_tables_of_numbers() -> None:
    tables = figures([repetition(lambda cell: run(5 if cell.policy == "none" else 10))])
    assert [t.number for t in tables] == ["4", "5", "5, by memory", "6", "7", "8", "9", "10"]
    assert tables[0].found.startswith("+100% at degree 5")
    for table in tables:
        assert all(len(estimates) == len(table.columns) for estimates in table.rows.values())
        assert all(one is not None for estimates in table.rows.values() for one in estimates)
        assert table.document()["paper"]
