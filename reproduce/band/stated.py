"""What Band states in numbers, each beside what our runs give, and whether the emulated phone was fitted to it.

Ratios are taken within a repetition, then averaged over repetitions.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from reproduce.band.experiments import MULTIPLIERS, Job, Numbers
from reproduce.band.systems import SYSTEMS
from reproduce.edge_multiai.experiments import Estimate

Basis = Literal["fitted", "predicted"]
UNSAID = "–"
REST: Mapping[str, str] = {"fixed": "2.6", "max partition": "4.9", "no subgraphs": UNSAID, "band": "11.8"}
SPEEDUPS: Mapping[str, Mapping[str, str]] = {
    "eagleeye": {"fixed": "4.53", "max partition": "2.42"},
    "crowded": {"fixed": "5.04", "max partition": "2.54"},
    "distream": {"fixed": "3.18", "max partition": "3.22"},
}
ASKED: Mapping[str, float] = {"fixed": 4.5, "max partition": 2.4, "no subgraphs": 1.05}
FIXED = ("fixed", "fixed, late dropped", "fixed, one at a time, late dropped")
"""Baselines of §6.4. At once, as they come, slowed as Table 1 says; or one at a time."""
ENDLESS = "fixed, one at a time"
"""The NPU is asked for more than it can do, and nobody drops what is late: in the end all is, so it is no yardstick."""
PROFILING = (
    ("first noise", "with estimates ±30 % off at the start", "0.984", 0.97),
    ("noise", "with estimates ±30 % off for ever", "0.984", 0.97),
    ("static", "with static offline profiles", "0.964", None),
    ("dynamic", "with dynamic offline profiles", "1.00", None),
)


@dataclass(frozen=True, slots=True)
class Statement:
    """`asked`: at least this is wanted of ours; None where nothing is. `ceiling`: what no policy gets above; None where
    that is not known.
    """

    section: str
    what: str
    paper: str
    basis: Basis
    ours: Estimate
    asked: float | None = None
    ceiling: Estimate | None = None

    @property
    def holds(self) -> bool | None:
        return None if self.asked is None else self.ours.mean >= self.asked

    def document(self) -> dict[str, Any]:
        """For `--json`: the estimate as [mean, half of the 95 % interval]."""
        facts = {"section": self.section, "what": self.what, "paper": self.paper, "basis": self.basis}
        ceiling = None if self.ceiling is None else _numbers(self.ceiling)
        return facts | {"ours": _numbers(self.ours), "ceiling": ceiling, "asked": self.asked, "holds": self.holds}


def _numbers(estimate: Estimate) -> list[float]:
    return [round(estimate.mean, 4), round(estimate.half, 4)]


def by_repetition(results: Iterable[tuple[Job, Numbers]]) -> list[Numbers]:
    """All numbers of each repetition."""
    found: dict[int, dict[str, float]] = {}
    for job, numbers in results:
        found.setdefault(job.repetition, {}).update(numbers)
    return [found[repetition] for repetition in sorted(found)]


def statements(repetitions: Sequence[Numbers]) -> list[Statement]:
    """All of them, in the order of the paper."""
    found: list[Statement] = []

    def say(
        section: str,
        what: str,
        paper: str,
        number: Callable[[Numbers], float] | str,
        asked: float | None = None,
        basis: Basis = "predicted",
        ceiling: Callable[[Numbers], float] | str | None = None,
    ) -> None:
        most = None if ceiling is None else estimated(ceiling)
        found.append(Statement(section, what, paper, basis, estimated(number), asked, most))

    def estimated(number: Callable[[Numbers], float] | str) -> Estimate:
        return Estimate.of([one[number] if isinstance(number, str) else number(one) for one in repetitions])

    def over(first: str, second: str) -> Callable[[Numbers], float]:
        return lambda one: one[first] / one[second]

    say("3.1", "EagleEye, frames/s, CPU and GPU only", "5.3", "eagleeye/cpu+gpu", basis="fitted")
    for system in SYSTEMS:
        basis: Basis = "fitted" if system in ("fixed", "max partition") else "predicted"
        say("6.2", f"EagleEye, frames/s, {system}", REST[system], f"eagleeye/{system}", basis=basis)
    for workload, title in (("eagleeye", "EagleEye"), ("crowded", "EagleEye, crowded"), ("distream", "Distream-like")):
        for system in SYSTEMS[:-1]:
            paper = SPEEDUPS[workload].get(system, "> 1")
            asked = ASKED[system] if workload == "eagleeye" else None
            say("6.2", f"{title}: band / {system}", paper, over(f"{workload}/band", f"{workload}/{system}"), asked)
    say("6.2", "Distream-like: max partition / fixed", "0.99", over("distream/max partition", "distream/fixed"))
    for method, what, paper, asked in PROFILING:
        ratio = over(f"profiling/{method}/fps", "profiling/band/fps")
        say("6.2.1", f"EagleEye: band {what} / band", paper, ratio, asked)
    say(
        "6.2.1",
        "profiling everything / the largest subgraphs, time",
        "15.8",
        over("profiling/dynamic/s", "profiling/band/s"),
    )
    for name, most in (("FSRNet", "1.40"), ("RetinaFace", "1.11")):
        say("6.3.1", f"1 to 10 {name} a frame: no subgraphs / band, frame time, most", most, f"one/{name}/most")
        say("6.3.1", f"the same, mean of 1 to 10 {name}", UNSAID, f"one/{name}/mean")
    say("6.3.2", "two FSRNet: less time than without subgraphs, %", "32", "one/FSRNet/two")
    for together in ("apart", "together"):
        when = "phases apart" if together == "apart" else "one camera"
        for multiplier in MULTIPLIERS:
            key = f"slo/{together}/{multiplier:g}"
            title = f"SLO {multiplier:g} × P99, {when}"
            say("6.4", f"{title}: in time, band", UNSAID, f"{key}/band", ceiling=f"{key}/at most")
            for baseline in (*FIXED, ENDLESS):
                say("6.4", f"{title}: in time, {baseline}", UNSAID, f"{key}/{baseline}")
        for baseline in FIXED:
            fixed = f"slo/{together}/2/{baseline}"
            pair, ceiling = over(f"slo/{together}/2/band", fixed), over(f"slo/{together}/2/at most", fixed)
            say("6.4", f"SLO 2 × P99, {when}: band / {baseline}", "3.76", pair, 3.5, ceiling=ceiling)
    say("6.5", "NPU lost for 7 s: frames/s meanwhile", "5.9", "lost/meanwhile")
    say("6.5", "frames/s meanwhile / before", "0.50", over("lost/meanwhile", "lost/before"))
    say("6.5", "answers lost", "0", "lost/answers lost")
    say("6.5", "answers doubled", "0", "lost/answers doubled")
    say("6.5", "runs on the NPU meanwhile", "0", "lost/npu runs meanwhile")
    say(UNSAID, "frames of 40 random networks: bound / makespan", UNSAID, "random/share", 0.9)
    return found
