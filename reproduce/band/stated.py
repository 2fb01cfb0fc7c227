"""What Band states in numbers, each beside what our runs give, and whether the emulated phone was fitted to it.

Ratios are taken within a repetition, then averaged over repetitions.
"""

from collections.abc import Mapping, Sequence

from reproduce.band.experiments import EXPERIMENTS, MULTIPLIERS
from reproduce.band.systems import SYSTEMS
from reproduce.claims import UNSAID, Claim, Claims, Number, Numbers, Paper, estimate, over

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


def statements(repetitions: Sequence[Numbers]) -> list[Claim]:
    """All of them, in the order of the paper."""
    claims = Claims(repetitions)

    def say(
        section: str,
        what: str,
        paper: str,
        number: Number,
        asked: float | None = None,
        basis: str = "predicted",
        at_most: Number | None = None,
    ) -> None:
        most = None if at_most is None else estimate(repetitions, at_most)
        claims.say(section, what, paper, number, least=asked, basis=basis, at_most=most)

    say("3.1", "EagleEye, frames/s, CPU and GPU only", "5.3", "eagleeye/cpu+gpu", basis="fitted")
    for system in SYSTEMS:
        basis = "fitted" if system in ("fixed", "max partition") else "predicted"
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
    ratio = over("profiling/dynamic/s", "profiling/band/s")
    say("6.2.1", "profiling everything / the largest subgraphs, time", "15.8", ratio)
    for name, most in (("FSRNet", "1.40"), ("RetinaFace", "1.11")):
        say("6.3.1", f"1 to 10 {name} a frame: no subgraphs / band, frame time, most", most, f"one/{name}/most")
        say("6.3.1", f"the same, mean of 1 to 10 {name}", UNSAID, f"one/{name}/mean")
    say("6.3.2", "two FSRNet: less time than without subgraphs, %", "32", "one/FSRNet/two")
    for together in ("apart", "together"):
        when = "phases apart" if together == "apart" else "one camera"
        for multiplier in MULTIPLIERS:
            key = f"slo/{together}/{multiplier:g}"
            title = f"SLO {multiplier:g} × P99, {when}"
            say("6.4", f"{title}: in time, band", UNSAID, f"{key}/band", at_most=f"{key}/at most")
            for baseline in (*FIXED, ENDLESS):
                say("6.4", f"{title}: in time, {baseline}", UNSAID, f"{key}/{baseline}")
        for baseline in FIXED:
            fixed = f"slo/{together}/2/{baseline}"
            pair, bound = over(f"slo/{together}/2/band", fixed), over(f"slo/{together}/2/at most", fixed)
            say("6.4", f"SLO 2 × P99, {when}: band / {baseline}", "3.76", pair, 3.5, at_most=bound)
    say("6.5", "NPU lost for 7 s: frames/s meanwhile", "5.9", "lost/meanwhile")
    say("6.5", "frames/s meanwhile / before", "0.50", over("lost/meanwhile", "lost/before"))
    say("6.5", "answers lost", "0", "lost/answers lost")
    say("6.5", "answers doubled", "0", "lost/answers doubled")
    say("6.5", "runs on the NPU meanwhile", "0", "lost/npu runs meanwhile")
    say(UNSAID, "frames of 40 random networks: bound / makespan", UNSAID, "random/share", 0.9)
    return claims.found


PAPER = Paper(
    EXPERIMENTS,
    statements,
    "The phone is emulated. Fitted: it was made to give these numbers; predicted: it was not. At most: what no policy "
    "gets above.",
)
