"""What Edge-MultiAI states in numbers, each beside what our runs of its experiments give (checklist EM-26 to EM-29).

The paper names no memory. So each figure is given twice: as the mean over `MEMORIES_MB`, and at the one memory whose
cold starts lie nearest to the paper's. Ratios and differences are taken within a repetition, then averaged over
repetitions.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from appliance.domain.robustness import fairness
from reproduce.edge_multiai.experiments import (
    ALPHAS,
    DEGREES,
    DEVIATIONS,
    MEMORIES_MB,
    POLICIES,
    USUAL,
    Estimate,
    Metric,
    Results,
    gap_s,
)
from reproduce.edge_multiai.sweep import ALPHA, GAP_S, Cell, Tally

PAPERS_COLD = {"lfe": 0.58, "bfe": 0.55, "ws-bfe": 0.22, "iws-bfe": 0.15}
"""Cold starts at 30 % deviation (the axis of Figure 7), from a plotting script of the paper's authors."""
PAPERS_ERROR = {"lfe": 20, "bfe": 15, "ws-bfe": 28, "iws-bfe": 11}
"""Model error in % beside them."""
UNSAID = "–"

Chosen = Callable[[Cell], bool]


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that the paper states, and what we find: over all memories, and at the nearest one; None without
    runs.
    """

    section: str
    what: str
    paper: str
    overall: Estimate | None
    nearest: Estimate | None
    holds: bool | None
    """Whether the mean over memories says the same; None where the paper gives no number to hold it against."""

    def document(self) -> dict[str, Any]:
        """For `--json`: estimates as [mean, half of the 95 % interval]."""
        pairs = [None if e is None else [round(e.mean, 4), round(e.half, 4)] for e in (self.overall, self.nearest)]
        facts = {"section": self.section, "what": self.what, "paper": self.paper}
        return facts | {"ours": pairs[0], "ours_at_nearest_memory": pairs[1], "holds": self.holds}


def nearest_memory_mb(results: Results) -> float:
    """The memory at which the paper's policies have cold starts nearest to those that it reports."""

    def distance(memory_mb: float) -> float:
        runs = _Runs(results, memory_mb)
        found = {policy: runs.estimate(_cold, _swept(policy, USUAL)) for policy in PAPERS_COLD}
        return sum(abs(e.mean - 100 * PAPERS_COLD[policy]) for policy, e in found.items() if e)

    return min(MEMORIES_MB, key=distance)


def statements(results: Results) -> list[Statement]:
    """All of them, in the order of the paper; `results` holds `reproduce.all_cells`."""
    scopes = (_Runs(results, None), _Runs(results, nearest_memory_mb(results)))

    def stated(
        section: str, what: str, paper: str, find: Callable[["_Runs"], Estimate | None], least: float | None = None
    ) -> Statement:
        overall, nearest = (find(runs) for runs in scopes)
        holds = None if overall is None or least is None else overall.mean >= least
        return Statement(section, what, paper, overall, nearest, holds)

    degree = DEGREES[-1]
    return [
        stated("IV-A", "worst forecasts: deviation reached, nats", "0.9", _worst_deviation),
        stated("abstract", "warm starts of iws-bfe above those of none, %", "~60", _warm_gain, 60),
        stated("abstract", f"warm starts of iws-bfe / none at degree {degree}", ">= 2", _warm_times(degree), 2),
        stated("IV-B", f"satisfaction of iws-bfe above none at degree {degree}, %", "~130", _satisfaction(degree), 130),
        *(
            stated("IV-C", f"cold starts of {ours} below {theirs}, %", ">= 65", _cold_cut(ours, theirs), 65)
            for ours in ("ws-bfe", "iws-bfe")
            for theirs in ("lfe", "bfe")
        ),
        stated("IV-C", "cold starts of iws-bfe below lfe and bfe, %", "102 (sic)", _cold_cut("iws-bfe", "lfe", "bfe")),
        stated("IV-C", "cold starts of iws-bfe below ws-bfe, %", "40", _cold_cut("iws-bfe", "ws-bfe"), 40),
        stated("IV-D", "least deviation with lfe or bfe more accurate than iws-bfe, %", "90", _accuracy_turns, 90),
        stated("IV-E", "best α for iws-bfe (cold + error least)", "1.02", _best_alpha),
        *(
            stated("IV-E", f"cold starts of {policy} at 30 %, %", f"{100 * cold:.0f}", _at_usual(_cold, policy))
            for policy, cold in PAPERS_COLD.items()
        ),
        *(
            stated("IV-E", f"model error of {policy} at 30 %, %", f"{error}", _at_usual(_error, policy))
            for policy, error in PAPERS_ERROR.items()
        ),
        *(stated("IV-F", f"R (eq. 4) of {policy}", UNSAID, _of_policy(_robustness, policy)) for policy in POLICIES),
        *(
            stated("IV-F", f"R of {ours} less that of {theirs}", "> 0", _robustness_gain(ours, theirs), 0)
            for ours in ("ws-bfe", "iws-bfe")
            for theirs in ("none", "lfe", "bfe")
        ),
        stated("IV-F", "R of iws-bfe at 0 % less that at 90 %", "> 0", _robustness_fall, 0),
        *(
            stated("IV-G", f"fairness of {policy} at 30 % (Jain's index of warm shares)", "no bias", _fairness(policy))
            for policy in POLICIES
        ),
    ]


@dataclass(frozen=True)
class _Runs:
    """The runs at one memory, or at all (None)."""

    results: Results
    memory_mb: float | None

    def means(self, metric: Metric, chosen: Chosen) -> dict[int, float]:
        """Repetition → the metric's mean over the chosen runs that have one."""
        found: dict[int, list[float]] = defaultdict(list)
        for cell, tally in self.results.items():
            if self.memory_mb in (None, cell.memory_mb) and chosen(cell) and (value := metric(tally)) is not None:
                found[cell.repetition].append(value)
        return {repetition: fmean(values) for repetition, values in found.items()}

    def estimate(self, metric: Metric, chosen: Chosen) -> Estimate | None:
        """Of one set of runs."""
        return self.combined(lambda values: values[0], metric, [chosen])

    def combined(
        self, combine: Callable[[Sequence[float]], float | None], metric: Metric, sets: Sequence[Chosen]
    ) -> Estimate | None:
        """Of several sets: their means are combined within each repetition that all have; None drops a repetition."""
        means = [self.means(metric, chosen) for chosen in sets]
        common = sorted(set.intersection(*(set(one) for one in means)))
        values = [combine([one[repetition] for one in means]) for repetition in common]
        kept = [value for value in values if value is not None]
        return Estimate.of(kept) if kept else None


Find = Callable[[_Runs], Estimate | None]


# Metrics of a run.


def _cold(tally: Tally) -> float:
    return 100 * tally.cold


def _warm(tally: Tally) -> float:
    return tally.warm


def _error(tally: Tally) -> float:
    return tally.error


def _robustness(tally: Tally) -> float:
    return tally.robustness


def _jain(tally: Tally) -> float | None:
    return fairness([share.served for share in tally.shares.values()])


# Sets of runs.


def _is_swept(cell: Cell) -> bool:
    return cell.gap_s == GAP_S and cell.alpha == ALPHA


def _swept(policy: str, deviation: float | None = None) -> Chosen:
    return lambda cell: _is_swept(cell) and cell.policy == policy and (deviation is None or cell.deviation == deviation)


def _at_degree(policy: str, degree: int) -> Chosen:
    return lambda cell: cell.policy == policy and cell.gap_s == gap_s(degree)


def _at_alpha(policy: str, alpha: float) -> Chosen:
    return lambda cell: (cell.policy, cell.alpha, cell.deviation, cell.gap_s) == (policy, alpha, USUAL, GAP_S)


# Findings.


def _worst_deviation(runs: _Runs) -> Estimate | None:
    return runs.estimate(lambda t: t.deviation_reached, lambda c: _is_swept(c) and c.deviation == DEVIATIONS[-1])


def _of_policy(metric: Metric, policy: str) -> Find:
    return lambda runs: runs.estimate(metric, _swept(policy))


def _at_usual(metric: Metric, policy: str) -> Find:
    return lambda runs: runs.estimate(metric, _swept(policy, USUAL))


def _fairness(policy: str) -> Find:
    return _at_usual(_jain, policy)


def _above(values: Sequence[float]) -> float | None:
    """Percent by which the first is above the second."""
    return 100 * (values[0] / values[1] - 1) if values[1] else None


def _below(values: Sequence[float]) -> float | None:
    """Percent by which the first is below the mean of the others."""
    others = fmean(values[1:])
    return 100 * (1 - values[0] / others) if others else None


def _warm_gain(runs: _Runs) -> Estimate | None:
    return runs.combined(_above, _warm, [_swept("iws-bfe"), _swept("none")])


def _satisfaction(degree: int) -> Find:
    return lambda runs: runs.combined(_above, _warm, [_at_degree(policy, degree) for policy in ("iws-bfe", "none")])


def _warm_times(degree: int) -> Find:
    sets = [_at_degree(policy, degree) for policy in ("iws-bfe", "none")]
    return lambda runs: runs.combined(lambda v: v[0] / v[1] if v[1] else None, _warm, sets)


def _cold_cut(ours: str, *theirs: str) -> Find:
    return lambda runs: runs.combined(_below, _cold, [_swept(policy) for policy in (ours, *theirs)])


def _robustness_gain(ours: str, theirs: str) -> Find:
    return lambda runs: runs.combined(lambda v: v[0] - v[1], _robustness, [_swept(ours), _swept(theirs)])


def _robustness_fall(runs: _Runs) -> Estimate | None:
    sets = [_swept("iws-bfe", deviation) for deviation in (DEVIATIONS[0], DEVIATIONS[-1])]
    return runs.combined(lambda v: v[0] - v[1], _robustness, sets)


def _accuracy_turns(runs: _Runs) -> Estimate | None:
    """100 in a repetition where neither ever is."""
    sets = [_swept(policy, deviation) for deviation in DEVIATIONS for policy in ("iws-bfe", "lfe", "bfe")]

    def least(values: Sequence[float]) -> float:
        triples = zip(values[::3], values[1::3], values[2::3], strict=True)
        turned = [d for d, (ours, *theirs) in zip(DEVIATIONS, triples, strict=True) if max(theirs) > ours]
        return 100 * min(turned, default=1.0)

    return runs.combined(least, lambda tally: tally.normalised, sets)


def _best_alpha(runs: _Runs) -> Estimate | None:
    def best(values: Sequence[float]) -> float:
        return min(zip(values, ALPHAS, strict=True))[1]

    return runs.combined(best, lambda t: _cold(t) + t.error, [_at_alpha("iws-bfe", alpha) for alpha in ALPHAS])
