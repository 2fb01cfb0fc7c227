"""Band's experiments, one number a name, and what it states in numbers beside ours, fitted to it or not.

A repetition is a seed: other frames, other run times. All systems of a repetition get the same frames. Ratios are taken
within a repetition, then averaged over repetitions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import exp
from random import Random

from appliance.policies.dispatch.base import FOREVER
from reproduce.band.beliefs import CALM, USUAL, Knowledge
from reproduce.band.bounds import Application, bound_ms, satisfaction_bound
from reproduce.band.contention import Call, in_time
from reproduce.band.device import Answer
from reproduce.band.frames import DISTREAM, EAGLEEYE, Frame, Task, crowded, frames
from reproduce.band.phone import (
    CPUS,
    DSP,
    FITTED,
    GPU,
    NPU,
    PROCESSORS,
    Fitted,
    Network,
    Phone,
    deepeye,
    distream,
    eagleeye,
    kind_of,
)
from reproduce.band.runs import play
from reproduce.band.systems import SYSTEMS, Setup, System, device
from reproduce.claims import UNSAID, Claim, Claims, Experiment, Numbers, Paper, estimate, over

FRAMES = 100
FIRST_SEED = 101
"""First seed of the repetitions; the phone was fitted on seeds from 1."""
LOST_AT_MS, LOST_MS = 3000.0, 7000.0
MULTIPLIERS = (1.0, 1.5, 2.0, 3.0)
APPS_MS = 20_000.0
RATE_HZ = 30.0
PERIOD_MS = 1000 / RATE_HZ
P99_SIGMAS = 2.326
RANDOM_FRAMES, RANDOM_JOBS = 5, 40


def eagleeye_setup(fitted: Fitted = FITTED) -> Setup:
    """The networks of EagleEye, and where the baselines have them."""
    homes = {"RetinaFace": CPUS, "ArcFace-MobileNet": (GPU,), "ArcFace-ResNet50": (DSP,), "FSRNet": (NPU,)}
    return Setup(Phone(eagleeye(fitted.first), fitted), {name: frozenset(home) for name, home in homes.items()})


def distream_setup() -> Setup:
    """The slowest network on the fastest processor, as §6.2 sets up the baselines."""
    homes = {"EfficientDet-Lite": NPU, "EfficientNet-Lite1": DSP, "EfficientNet-Lite2": GPU}
    return Setup(Phone(distream()), {name: frozenset((home,)) for name, home in homes.items()})


# -- frames ------------------------------------------------------------------------------------------------------------


def eagleeye_systems(seed: int) -> Numbers:
    """Frames a second of each system (Fig. 14a), and of Band on CPU and GPU only (Fig. 4)."""
    setup, video = eagleeye_setup(), frames(EAGLEEYE, FRAMES, seed)
    few = replace(setup, processors=(*CPUS, GPU))
    return _systems("eagleeye", setup, video, seed) | {"eagleeye/cpu+gpu": _fps(few, "band", video, seed)}


def eagleeye_crowded(seed: int) -> Numbers:
    """The most crowded tenth (Fig. 14b)."""
    return _systems("crowded", eagleeye_setup(), crowded(EAGLEEYE, FRAMES, seed), seed)


def distream_systems(seed: int) -> Numbers:
    """Fig. 14c."""
    return _systems("distream", distream_setup(), frames(DISTREAM, FRAMES, seed), seed)


def profiling(seed: int) -> Numbers:
    """Frames a second by method of profiling, and what profiling takes (Fig. 15b)."""
    setup, video = eagleeye_setup(), frames(EAGLEEYE, FRAMES, seed)
    methods = {
        "static": Knowledge("static"),
        "dynamic": Knowledge("dynamic"),
        "first noise": Knowledge("band", first_error=0.3),
        "noise": Knowledge("band", error=0.3),
        "band": Knowledge("band"),
    }
    found: dict[str, float] = {}
    for name, knowledge in methods.items():
        made, belief = device(setup, "band", seed, knowledge)
        found[f"profiling/{name}/fps"] = play(made, video).fps
        found[f"profiling/{name}/s"] = belief.profiled_ms / 1000
    return found


def one_network(seed: int) -> Numbers:
    """Frames of 1 to 10 requests for one network (Fig. 16): how much slower they are without subgraphs, at most, and
    in the mean; two of FSRNet (Fig. 17a).
    """
    setup = eagleeye_setup()
    found: dict[str, float] = {}
    for name in ("FSRNet", "RetinaFace"):
        gains = []
        for count in range(1, 11):
            video = [tuple(Task(name) for _ in range(count))] * 10
            gains.append(_fps(setup, "band", video, seed) / _fps(setup, "no subgraphs", video, seed))
        found[f"one/{name}/most"] = max(gains)
        found[f"one/{name}/mean"] = sum(gains) / len(gains)
        found[f"one/{name}/two"] = 100 * (1 - 1 / gains[1])
    return found


def npu_lost(seed: int) -> Numbers:
    """The NPU is away for 7 s under full load (Fig. 19): frames a second before and meanwhile, and answers that were
    lost or came twice.
    """
    made, _ = device(eagleeye_setup(), "band", seed)
    made.at(LOST_AT_MS, lambda: made.lose(NPU))
    made.at(LOST_AT_MS + LOST_MS, lambda: made.restore(NPU))
    asked = frames(EAGLEEYE, 2 * FRAMES, seed)
    video = play(made, asked)
    answered = [answer.name for answer in video.answers if answer.ran]
    return {
        "lost/before": video.fps_between(0, LOST_AT_MS),
        "lost/meanwhile": video.fps_between(LOST_AT_MS, LOST_AT_MS + LOST_MS),
        "lost/after": video.fps_between(LOST_AT_MS + LOST_MS, video.ended_ms[-1]),
        "lost/answers lost": sum(map(len, asked)) - len(set(answered)),
        "lost/answers doubled": len(answered) - len(set(answered)),
        "lost/runs broken off": made.broken,
        "lost/npu runs meanwhile": sum(
            trace.processor == NPU and trace.end_ms > LOST_AT_MS and trace.start_ms < LOST_AT_MS + LOST_MS
            for trace in made.traces
        ),
    }


def random_frames(seed: int) -> Numbers:
    """Frames of random networks, all of which could begin at once, without noise: bound / makespan."""
    setup = replace(eagleeye_setup(), weather=CALM)
    random, shares = Random(f"{seed}/random frames"), []
    for _ in range(RANDOM_FRAMES):
        names = [random.choice(sorted(setup.phone.networks)) for _ in range(RANDOM_JOBS)]
        made, _ = device(setup, "band", seed, Knowledge("static"))
        (makespan_ms,) = play(made, [tuple(Task(name) for name in names)]).makespans_ms
        shares.append(bound_ms(setup.phone, names) / makespan_ms)
    return {"random/share": sum(shares) / len(shares), "random/least": min(shares)}


def _systems(name: str, setup: Setup, video: Sequence[Frame], seed: int) -> dict[str, float]:
    return {f"{name}/{system}": _fps(setup, system, video, seed) for system in SYSTEMS}


def _fps(setup: Setup, system: System, video: Sequence[Frame], seed: int) -> float:
    made, _ = device(setup, system, seed)
    return play(made, video).fps


# -- applications ------------------------------------------------------------------------------------------------------


def applications(seed: int) -> Numbers:
    """Four applications of 30 requests a second, each with a network of its own (Fig. 18): the share in time by
    multiple of the P99 of a run alone on the fastest processor. `together`: all have the same camera, so their
    requests come at the same moments. `at most`: what no schedule does better, were all known beforehand.
    """
    found: dict[str, float] = {}
    phone = Phone(deepeye(), FITTED)
    for together in (False, True):
        for multiplier in MULTIPLIERS:
            calls = _calls(phone, multiplier, seed, together=together)
            key = f"slo/{'together' if together else 'apart'}/{multiplier:g}"
            found[f"{key}/band"] = _served(phone, calls, seed)
            found[f"{key}/at most"] = satisfaction_bound(_periodic(phone, calls), PERIOD_MS)
            found[f"{key}/fixed"] = in_time(calls, seed, drops_late=False)
            found[f"{key}/fixed, late dropped"] = in_time(calls, seed, drops_late=True)
            found[f"{key}/fixed, one at a time"] = _served(phone, calls, seed, "fixed", drops_late=False)
            found[f"{key}/fixed, one at a time, late dropped"] = _served(phone, calls, seed, "fixed")
    return found


def _calls(phone: Phone, multiplier: float, seed: int, *, together: bool) -> list[Call]:
    random, calls = Random(f"{seed}/calls"), []
    for name, network in phone.networks.items():
        first_ms = random.uniform(0, PERIOD_MS)
        alone_ms = phone.run_ms(network, [0], NPU)
        slo_ms = multiplier * alone_ms * USUAL.loaded[NPU] * exp(P99_SIGMAS * USUAL.spread[NPU])
        for number in range(int(APPS_MS * RATE_HZ / 1000)):
            at_ms = number * 1000 / RATE_HZ + (0.0 if together else first_ms)
            calls.append(Call(name, at_ms, alone_ms * USUAL.loaded[NPU], at_ms + slo_ms))
    return calls


def _periodic(phone: Phone, calls: Sequence[Call]) -> list[Application]:
    """The same for the bound: of each application the first request, and runs as quick as one in a hundred is."""
    first: dict[str, Call] = {}
    for call in calls:
        first.setdefault(call.application, call)

    def takes_ms(network: Network, processor: str) -> float:
        kind = kind_of(processor)
        return phone.run_ms(network, [0], processor) * USUAL.loaded[kind] * exp(-P99_SIGMAS * USUAL.spread[kind])

    return [
        Application(
            call.at_ms,
            call.deadline_ms - call.at_ms,
            {processor: takes_ms(phone.networks[name], processor) for processor in PROCESSORS},
        )
        for name, call in first.items()
    ]


def _served(
    phone: Phone, calls: Sequence[Call], seed: int, system: System = "band", *, drops_late: bool = True
) -> float:
    """The share that is answered in time: Band's by least slack; the fixed system's on the NPU, first come first
    served. Where late ones are not dropped nobody knows when a request is late.
    """
    homes = {name: frozenset((NPU,)) for name in phone.networks}
    setup = Setup(phone, homes, policy="least-slack")
    made, _ = device(setup, system, seed)
    answers: list[Answer] = []

    def submit(index: int, call: Call) -> None:
        deadline_ms = call.deadline_ms if drops_late else FOREVER
        made.submit(f"{index}", call.application, answers.append, deadline_ms, drop_late=drops_late)

    for index, call in enumerate(calls):
        made.at(call.at_ms, partial(submit, index, call))
    made.run()
    kept = (answer.ran and answer.ended_ms <= calls[int(answer.name)].deadline_ms for answer in answers)
    return sum(kept) / len(calls)


def _repetition(experiment: Experiment) -> Experiment:
    """The experiment by its repetition instead of its seed."""
    return lambda repetition: experiment(FIRST_SEED - 1 + repetition)


EXPERIMENTS: Mapping[str, Experiment] = {
    one.__name__: _repetition(one)
    for one in (
        eagleeye_systems,
        eagleeye_crowded,
        distream_systems,
        profiling,
        one_network,
        npu_lost,
        random_frames,
        applications,
    )
}


# -- what the paper states ---------------------------------------------------------------------------------------------

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
    say = partial(claims.say, basis="predicted", at_most=None)

    say("3.1", "EagleEye, frames/s, CPU and GPU only", "5.3", "eagleeye/cpu+gpu", basis="fitted")
    for system in SYSTEMS:
        basis = "fitted" if system in ("fixed", "max partition") else "predicted"
        say("6.2", f"EagleEye, frames/s, {system}", REST[system], f"eagleeye/{system}", basis=basis)
    for workload, title in (("eagleeye", "EagleEye"), ("crowded", "EagleEye, crowded"), ("distream", "Distream-like")):
        for system in SYSTEMS[:-1]:
            paper = SPEEDUPS[workload].get(system, "> 1")
            asked = ASKED[system] if workload == "eagleeye" else None
            ratio = over(f"{workload}/band", f"{workload}/{system}")
            say("6.2", f"{title}: band / {system}", paper, ratio, least=asked)
    say("6.2", "Distream-like: max partition / fixed", "0.99", over("distream/max partition", "distream/fixed"))
    for method, what, paper, asked in PROFILING:
        ratio = over(f"profiling/{method}/fps", "profiling/band/fps")
        say("6.2.1", f"EagleEye: band {what} / band", paper, ratio, least=asked)
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
            bound = estimate(repetitions, f"{key}/at most")
            say("6.4", f"{title}: in time, band", UNSAID, f"{key}/band", at_most=bound)
            for baseline in (*FIXED, ENDLESS):
                say("6.4", f"{title}: in time, {baseline}", UNSAID, f"{key}/{baseline}")
        for baseline in FIXED:
            fixed = f"slo/{together}/2/{baseline}"
            pair = over(f"slo/{together}/2/band", fixed)
            bound = estimate(repetitions, over(f"slo/{together}/2/at most", fixed))
            say("6.4", f"SLO 2 × P99, {when}: band / {baseline}", "3.76", pair, least=3.5, at_most=bound)
    say("6.5", "NPU lost for 7 s: frames/s meanwhile", "5.9", "lost/meanwhile")
    say("6.5", "frames/s meanwhile / before", "0.50", over("lost/meanwhile", "lost/before"))
    say("6.5", "answers lost", "0", "lost/answers lost")
    say("6.5", "answers doubled", "0", "lost/answers doubled")
    say("6.5", "runs on the NPU meanwhile", "0", "lost/npu runs meanwhile")
    say(UNSAID, "frames of 40 random networks: bound / makespan", UNSAID, "random/share", least=0.9)
    return claims.found


PAPER = Paper(
    EXPERIMENTS,
    statements,
    "The phone is emulated. Fitted: it was made to give these numbers; predicted: it was not. At most: what no policy "
    "gets above.",
)
