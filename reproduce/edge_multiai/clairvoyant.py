"""How far our policy goes from iWS-BFE to a planner that knows every arrival."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from statistics import fmean

from appliance.lab.clairvoyant.reference import Reference
from reproduce.claims import Numbers
from reproduce.edge_multiai.experiments import DEVIATIONS, MEMORIES_MB, OURS, name_of
from reproduce.edge_multiai.sweep import Cell, bound_cell

YARDSTICK = "iws-bfe"
Allowed = Sequence[tuple[Cell, float]]
"""Runs of ours with the same requests and memory, each with the share of requests that may be cold."""


def gap_jobs(repetitions: Sequence[Numbers]) -> list[Allowed]:
    """What `bound_one` has to do: for each run of ours, the reference that may be as cold as the colder of the two
    policies.
    """
    jobs: dict[tuple[int, float], list[tuple[Cell, float]]] = defaultdict(list)
    for (number, one), deviation, memory_mb in product(enumerate(repetitions, 1), DEVIATIONS, MEMORIES_MB):
        colder = max(one[f"{name_of(policy, memory_mb, deviation)}/cold"] for policy in (OURS, YARDSTICK))
        jobs[number, memory_mb].append((Cell(OURS, memory_mb, deviation, number), colder / 100))
    return list(jobs.values())


def bound_one(job: Allowed) -> list[tuple[Cell, Reference]]:
    """Return the references of a job, in a process of a pool."""
    cells = [cell for cell, _ in job]
    return list(zip(cells, bound_cell(cells[0], [cold for _, cold in job]), strict=True))


def gap(repetitions: Sequence[Numbers], references: Iterable[tuple[Cell, Reference]]) -> dict[str, float]:
    """Pool all given runs: how far iWS-BFE is below the bound and below the clairvoyant's own plan, which estimates the
    bound from below, and the shares of the way that ours goes (0 where there is none).
    """
    rows = []
    for cell, reference in references:
        one = repetitions[cell.repetition - 1]
        ours, theirs = (name_of(policy, cell.memory_mb, cell.deviation) for policy in (OURS, YARDSTICK))
        utility, cold = one[f"{theirs}/utility"], one[f"{theirs}/cold"] / 100
        gained, saved = one[f"{ours}/utility"] - utility, cold - one[f"{ours}/cold"] / 100
        ahead = reference.utility_most - utility, reference.utility_reached - utility
        rows.append((gained, *ahead, saved, cold - reference.cold_least))
    gained, most, reached, saved, cold = (fmean(column) for column in zip(*rows, strict=True))
    return {
        "runs": len(rows),
        "utility_gap": most,
        "utility_gap_to_plan": reached,
        "utility_share_closed": gained / most if most else 0.0,
        "cold_gap": cold,
        "cold_share_closed": saved / cold if cold else 0.0,
    }


def gap_text(gap: Mapping[str, float]) -> str:
    """A paragraph of Markdown."""
    return (
        "## Our policy between iws-bfe and the clairvoyant\n\n"
        f"Over {gap['runs']} runs iws-bfe's utility is {gap['utility_gap']:.2f} below the bound "
        f"and {gap['utility_gap_to_plan']:.2f} below the plan of a clairvoyant; expected-utility closes "
        f"{gap['utility_share_closed']:.0%} of the way to the bound. "
        f"Of {100 * gap['cold_gap']:.2f} points of avoidable cold starts it closes {gap['cold_share_closed']:.0%}."
    )
