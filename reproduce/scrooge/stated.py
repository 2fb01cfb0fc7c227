"""What Scrooge states in numbers, and what is asked of us, each beside what our runs give (SC-27 to SC-29)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from reproduce.claims import UNSAID, Claim, Claims, Numbers
from reproduce.scrooge.applications import APPLICATIONS
from reproduce.scrooge.experiments import (
    ALONE,
    FORESIGHT,
    FRONT_ENDS,
    GREEDY,
    HEADROOMS,
    LEANER,
    NEXUS,
    OFF_DELAYS_S,
    OURS,
    SLOS_MS,
    name_of,
)
from reproduce.scrooge.runs import Conditions

FINISH = {"traffic": "0.977", "face": "0.982", "tracker": UNSAID}
NEXUS_FINISH = {"traffic": "0.863", "face": "0.905", "tracker": "0.976"}
FEWER = {("face", 1): "0.306", ("face", 3): "0.757", ("tracker", 1): "0.319", ("tracker", 3): UNSAID}
NEXUS_COST = {"traffic": "1.218", "face": "1.319", "tracker": "1.160"}
ALONE_COST = {"traffic": "1.17-1.32", "face": "2.38-2.40", "tracker": "1.41-1.64"}
"""From the savings of 14.48-24.36, 57.90-58.28 and 29.16-39.10 %."""
SLOWER = {"traffic": "18.14", "face": "4.63", "tracker": "25.59"}
WITHOUT_DELAY = 0.9285
"""Frames in time without a turn-off delay, the middle of the paper's."""
DELAYS = {0.0: "0.919-0.938", 30.0: "> 0.97", 120.0: "> 0.98"}
ROOTS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("traffic", "batch"): ("1.91", "7.78"),
    ("traffic", "concurrency"): ("2.77", "2.06"),
    ("traffic", "throughput"): ("24.9", "33.6"),
    ("tracker", "throughput"): ("27.9", "38.2"),
}
EQUAL = 0.005
"""Finish rates this far apart are equal."""


def statements(repetitions: Sequence[Numbers], applications: Sequence[str] = tuple(APPLICATIONS)) -> list[Claim]:
    """All of them."""
    claims = Claims(repetitions)
    for name in applications:
        _compare(claims, name)
    for name in applications:
        _sweep(claims, name)
    for name in applications:
        _delays(claims, name)
    for name in applications:
        for policy, paper in ((GREEDY, "0.80; 1.05"), ("scrooge", "0.85; 1.03")):
            what = f"{name}: {policy}, share of decisions that cost no more than ours; the worst"
            same, worst = paper.split("; ")
            claims.say("4.3", what, same, f"{name}/{policy}/same")
            claims.say("4.3", f"{name}: {policy}, the worst decision / ours", worst, f"{name}/{policy}/worst")
        claims.say("4.3", f"{name}: decisions of ours proven to be optimal", UNSAID, f"{name}/optimal")
    return claims.found


def _compare(claims: Claims, name: str) -> None:
    usual = Conditions()
    ours = name_of(name, OURS, usual)
    claims.say("4.2", f"{name}: frames in time", FINISH[name], f"{ours}/finish", least=0.98)
    claims.say("4.1", f"{name}: the same, mean of windows of 1 s", FINISH[name], f"{ours}/windows")
    claims.say("4.2", f"{name}: cost of ours, USD an hour", "11.1" if name == "traffic" else UNSAID, _hourly(ours))
    for policy in (NEXUS, GREEDY, ALONE, FORESIGHT):
        paper = NEXUS_FINISH[name] if policy == NEXUS else UNSAID
        theirs = name_of(name, policy, usual)
        claims.say("4.2", f"{name}: frames in time, {policy}", paper, f"{theirs}/finish")
        if policy not in (ALONE, FORESIGHT):
            claims.say("4.2", f"{name}: cost of {policy} / ours", UNSAID, _ratio(theirs, ours, "cost"))
    for machines in FRONT_ENDS.get(name, ()):
        what = f"{name}: frames in time, {NEXUS}, {machines} for the CPU stage"
        claims.say("4.2", what, FEWER[name, machines], f"{name}/front ends {machines}/finish")
    claims.say(
        "4.2", f"{name}: cost of {NEXUS} / ours, as many frames in time", NEXUS_COST[name], equal_cost(name), least=1.16
    )
    claims.say("4.2", f"{name}: the same in whole workers", UNSAID, equal_cost(name, "rented"))
    alone = name_of(name, ALONE, usual)
    claims.say("4.4", f"{name}: cost of {ALONE} / ours", ALONE_COST[name], _ratio(alone, ours, "cost"), least=1.1)
    best = name_of(name, FORESIGHT, usual)
    claims.say("–", f"{name}: cost / who knows every second beforehand", UNSAID, _ratio(ours, best, "cost"), most=1.1)


def _sweep(claims: Claims, name: str) -> None:
    usual = Conditions()
    first = name_of(name, OURS, usual)
    for slo_ms in SLOS_MS[1:]:
        later = name_of(name, OURS, replace(usual, slo_ms=slo_ms))
        paper = SLOWER[name] if slo_ms == SLOS_MS[-1] else UNSAID
        claims.say("4.3", f"{name}: cost saved at {slo_ms:g} ms, %", paper, _saved(later, first))
        claims.say("4.3", f"{name}: frames in time at {slo_ms:g} ms", UNSAID, f"{later}/finish")
        alone = name_of(name, ALONE, replace(usual, slo_ms=slo_ms))
        what = f"{name}: cost of {ALONE} / ours at {slo_ms:g} ms"
        claims.say("4.4", what, ALONE_COST[name], _ratio(alone, later, "cost"))
    for (application, key), papers in ROOTS.items():
        if application == name:
            for slo_ms, paper in zip((SLOS_MS[0], SLOS_MS[-1]), papers, strict=True):
                what = f"{name}: mean {key} of the first stage at {slo_ms:g} ms"
                claims.say("4.3", what, paper, f"{name}/{slo_ms:g} ms/{key}")


def _delays(claims: Claims, name: str) -> None:
    usual = Conditions()
    at = {delay: name_of(name, OURS, replace(usual, off_delay_s=delay)) for delay in OFF_DELAYS_S}
    for delay, paper in DELAYS.items():
        claims.say("4.4", f"{name}: frames in time, turn-off delay {delay:g} s", paper, f"{at[delay]}/finish")
    what = f"{name}: turn-off delay 30 s against 0, points"
    claims.say("4.4", what, "3-5", _points(at[30.0], at[0.0]), least=3.0)
    gone = [name_of(name, OURS, replace(usual, hands_over=False, off_delay_s=delay)) for delay in OFF_DELAYS_S[:2]]
    what = f"{name}: frames in time, 0 s, where what a plan gives up does not go on during loads"
    claims.say("4.4", what, DELAYS[0.0], f"{gone[0]}/finish")
    claims.say("4.4", f"{name}: 30 s against 0 so, points", "3-5", _points(gone[1], gone[0]))
    claims.say("4.4", f"{name}: not in time at 0 s, points: the most to gain", "6.2-8.1", _to_gain(at[0.0]))
    claims.say("4.4", f"{name}: headroom at which 0 s is nearest to the paper's", UNSAID, lambda n: _lean(n, name))
    claims.say("4.4", f"{name}: frames in time there, 0 s", DELAYS[0.0], lambda n: n[f"{_leanest(n, name)[0]}/finish"])
    claims.say("4.4", f"{name}: 30 s against 0 there, points", "3-5", lambda n: _points(*_leanest(n, name)[::-1])(n))
    claims.say("4.4", f"{name}: the same, cost in whole workers", UNSAID, _ratio(at[30.0], at[0.0], "rented"))


def _ratio(above: str, below: str, key: str) -> Callable[[Numbers], float]:
    return lambda numbers: numbers[f"{above}/{key}"] / numbers[f"{below}/{key}"]


def _hourly(name: str) -> Callable[[Numbers], float]:
    return lambda numbers: numbers[f"{name}/cost"] * 3.6


def _saved(later: str, first: str) -> Callable[[Numbers], float]:
    return lambda numbers: 100.0 * (1.0 - numbers[f"{later}/cost"] / numbers[f"{first}/cost"])


def _points(more: str, less: str) -> Callable[[Numbers], float]:
    return lambda numbers: 100.0 * (numbers[f"{more}/finish"] - numbers[f"{less}/finish"])


def _to_gain(name: str) -> Callable[[Numbers], float]:
    return lambda numbers: 100.0 * (1.0 - numbers[f"{name}/finish"])


def _lean(numbers: Numbers, name: str) -> float:
    """The headroom with which, without a turn-off delay, about as many frames are in time as the paper had."""
    usual = Conditions()

    def off(headroom: float) -> float:
        at = name_of(name, OURS, replace(usual, headroom=headroom, off_delay_s=0.0))
        return abs(numbers[f"{at}/finish"] - WITHOUT_DELAY)

    return min((usual.headroom, *LEANER), key=off)


def _leanest(numbers: Numbers, name: str) -> tuple[str, str]:
    """The experiments at that headroom, without a turn-off delay and with the usual one."""
    lean = replace(Conditions(), headroom=_lean(numbers, name))
    return name_of(name, OURS, replace(lean, off_delay_s=0.0)), name_of(name, OURS, lean)


def equal_cost(name: str, key: str = "cost") -> Callable[[Numbers], float]:
    """Of Nexus over ours, with the least headroom that gives Nexus as many frames in time, or the largest one tried."""
    usual = Conditions()
    ours = name_of(name, OURS, usual)
    ladder = [name_of(name, NEXUS, replace(usual, headroom=h)) for h in (usual.headroom, *HEADROOMS)]

    def ratio(numbers: Numbers) -> float:
        enough = [at for at in ladder if numbers[f"{at}/finish"] >= numbers[f"{ours}/finish"] - EQUAL]
        return numbers[f"{(enough or ladder[-1:])[0]}/{key}"] / numbers[f"{ours}/{key}"]

    return ratio
