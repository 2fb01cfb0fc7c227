"""What Edge-MultiAI states in numbers, each beside what our runs of its experiments give (checklist EM-26 to EM-29).

The paper names no memory. So each figure is given twice: as the mean over `MEMORIES_MB`, and at the one memory whose
cold starts lie nearest to the paper's. Ratios and differences are taken within a repetition, then averaged over
repetitions.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

from reproduce.claims import UNSAID, Claim, Claims, Estimate, Numbers, Paper, estimate, over
from reproduce.edge_multiai.experiments import (
    ALPHAS,
    DEGREES,
    DEVIATIONS,
    EXPERIMENTS,
    MEMORIES_MB,
    POLICIES,
    USUAL,
    mean,
    name_of,
)
from reproduce.edge_multiai.figures import figures

PAPERS_COLD = {"lfe": 58.0, "bfe": 55.0, "ws-bfe": 22.0, "iws-bfe": 15.0}
"""Cold starts in % at 30 % deviation (the axis of Figure 7), from a plotting script of the paper's authors."""
PAPERS_ERROR = {"lfe": 20, "bfe": 15, "ws-bfe": 28, "iws-bfe": 11}
"""Model error in % beside them."""
Found = Callable[[Numbers], float]


def statements(repetitions: Sequence[Numbers]) -> list[Claim]:
    """All of them, in the order of the paper; and the memory that is nearest to the paper's."""
    nearest_mb = nearest_memory_mb(repetitions)
    overall, there = (_claims(repetitions, memories) for memories in (MEMORIES_MB, (nearest_mb,)))
    nearest = Claim(UNSAID, "memory with cold starts nearest to the paper's, MB", UNSAID, Estimate(nearest_mb, 0.0))
    return [
        *(replace(one, beside={"ours_at_nearest_memory": at.ours}) for one, at in zip(overall, there, strict=True)),
        nearest,
    ]


def nearest_memory_mb(repetitions: Sequence[Numbers]) -> float:
    """The memory at which the paper's policies have cold starts nearest to those that it reports."""

    def distance(memory_mb: float) -> float:
        found = {policy: estimate(repetitions, f"{name_of(policy, memory_mb)}/cold") for policy in PAPERS_COLD}
        return sum(abs(one.mean - PAPERS_COLD[policy]) for policy, one in found.items() if one)

    return min(MEMORIES_MB, key=distance)


def _claims(repetitions: Sequence[Numbers], memories: Sequence[float]) -> list[Claim]:
    """Claims of the means over these memories."""
    claims = Claims(repetitions)
    say = claims.say

    def of(key: str, policy: str, *deviations: float) -> Found:
        """A policy's mean over these deviations, or over all."""
        return mean(key, [name_of(policy, mb, d) for d, mb in product(deviations or DEVIATIONS, memories)])

    def warm_at_most(policy: str) -> Found:
        return mean("warm", [name_of(policy, mb, degree=DEGREES[-1]) for mb in memories])

    def below(ours: str, *theirs: str) -> Found:
        """Percent by which a policy has fewer cold starts than the mean of others."""
        others = [of("cold", policy) for policy in theirs]
        ratio = over(of("cold", ours), lambda one: sum(other(one) for other in others) / len(others))
        return lambda one: 100 * (1 - ratio(one))

    worst = [name_of(policy, mb, DEVIATIONS[-1]) for mb, policy in product(memories, POLICIES)]
    say("IV-A", "worst forecasts: deviation reached, nats", "0.9", mean("deviation", worst))
    warm = over(of("warm", "iws-bfe"), of("warm", "none"))
    what = "warm starts of iws-bfe above those of none, %"
    say("abstract", what, "~60", lambda one: 100 * (warm(one) - 1), least=60)
    dense = over(warm_at_most("iws-bfe"), warm_at_most("none"))
    say("abstract", f"warm starts of iws-bfe / none at degree {DEGREES[-1]}", ">= 2", dense, least=2)
    what = f"satisfaction of iws-bfe above none at degree {DEGREES[-1]}, %"
    say("IV-B", what, "~130", lambda one: 100 * (dense(one) - 1), least=130)
    for ours, theirs in product(("ws-bfe", "iws-bfe"), ("lfe", "bfe")):
        say("IV-C", f"cold starts of {ours} below {theirs}, %", ">= 65", below(ours, theirs), least=65)
    say("IV-C", "cold starts of iws-bfe below lfe and bfe, %", "102 (sic)", below("iws-bfe", "lfe", "bfe"))
    say("IV-C", "cold starts of iws-bfe below ws-bfe, %", "40", below("iws-bfe", "ws-bfe"), least=40)
    accuracies = [(d, [of("normalised", policy, d) for policy in ("iws-bfe", "lfe", "bfe")]) for d in DEVIATIONS]
    what = "least deviation with lfe or bfe more accurate than iws-bfe, %"
    say("IV-D", what, "90", lambda one: _turn(one, accuracies), least=90)
    runs = {alpha: [name_of("iws-bfe", mb, alpha=alpha) for mb in memories] for alpha in ALPHAS}
    scores = {alpha: (mean("cold", names), mean("error", names)) for alpha, names in runs.items()}
    what = "best α for iws-bfe (cold + error least)"
    say("IV-E", what, "1.02", lambda one: min(ALPHAS, key=lambda alpha: sum(part(one) for part in scores[alpha])))
    for policy, cold in PAPERS_COLD.items():
        say("IV-E", f"cold starts of {policy} at 30 %, %", f"{cold:.0f}", of("cold", policy, USUAL))
    for policy, error in PAPERS_ERROR.items():
        say("IV-E", f"model error of {policy} at 30 %, %", f"{error}", of("error", policy, USUAL))
    for policy in POLICIES:
        say("IV-F", f"R (eq. 4) of {policy}", UNSAID, of("robustness", policy))
    for ours, theirs in product(("ws-bfe", "iws-bfe"), ("none", "lfe", "bfe")):
        gain = _difference(of("robustness", ours), of("robustness", theirs))
        say("IV-F", f"R of {ours} less that of {theirs}", "> 0", gain, least=0)
    first, last = (of("robustness", "iws-bfe", deviation) for deviation in (DEVIATIONS[0], DEVIATIONS[-1]))
    say("IV-F", "R of iws-bfe at 0 % less that at 90 %", "> 0", _difference(first, last), least=0)
    for policy in POLICIES:
        what = f"fairness of {policy} at 30 % (Jain's index of warm shares)"
        say("IV-G", what, "no bias", of("fairness", policy, USUAL))
    return claims.found


def _difference(first: Found, second: Found) -> Found:
    return lambda one: first(one) - second(one)


def _turn(one: Numbers, accuracies: Sequence[tuple[float, Sequence[Found]]]) -> float:
    """The least deviation (%) at which another policy is more accurate than the first; 100 where none ever is."""
    found = [(deviation, [number(one) for number in numbers]) for deviation, numbers in accuracies]
    return 100 * min((deviation for deviation, (ours, *theirs) in found if max(theirs) > ours), default=1.0)


PAPER = Paper(
    EXPERIMENTS,
    statements,
    "The paper names no memory: the mean over all, and the one whose cold starts are nearest to its.",
    figures,
)
