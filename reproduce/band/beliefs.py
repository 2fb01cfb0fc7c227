"""What a device believes that its runs take, and what they really take (Band §4.3.2).

Methods of profiling (§6.2.1): `static` measures every subgraph on every processor beforehand and stays with that;
`dynamic` does the same and is corrected by every run; `band` measures only the largest subgraph of each network on each
processor, estimates the others by FLOPs and tensor bytes, and is corrected by every run. Measured beforehand is on an
idle phone; under load everything takes longer. Runs are corrected by the plain estimator of the box.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from appliance.policies.dispatch.partition import Operator, Partition, partition
from appliance.runtime.profiles.estimate import Estimate
from reproduce.band.device import Leg, believed
from reproduce.band.phone import CPUS, MOVE_MS, PROCESSORS, Network, Phone, kind_of

Method = Literal["static", "dynamic", "band"]
ALPHA = 0.1
"""Weight of a run in what is believed (§4.3.2)."""
BETA: Mapping[str, float] = {"cpu": 10.0}
BETA_ACCELERATOR = 1000.0
"""What a byte of input and output counts beside a FLOP (§4.3.2)."""
MEASURED_RUNS = 3
"""How often a profiler runs a subgraph."""


@dataclass(frozen=True, slots=True)
class Weather:
    """How runs differ from those on an idle phone, by kind of processor. `loaded`: they take so many times as long;
    `spread`: the standard deviation of the logarithm of a run's time.
    """

    loaded: Mapping[str, float]
    spread: Mapping[str, float]


USUAL = Weather(
    {"cpu": 1.2, "gpu": 1.15, "dsp": 1.05, "npu": 1.05}, {"cpu": 0.08, "gpu": 0.08, "dsp": 0.04, "npu": 0.04}
)
"""Heat and memory (Fig. 15a: offline profiles are too short); Table 1: 3 % for one model at a time."""
CALM = Weather({"cpu": 1.0, "gpu": 1.0, "dsp": 1.0, "npu": 1.0}, {"cpu": 0.0, "gpu": 0.0, "dsp": 0.0, "npu": 0.0})
"""Every run as on an idle phone."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """How a device knows its runs. Estimates are off by a factor drawn from 1 ± error (§6.2.1: 0.3): `first_error` of
    those at the start, which runs then correct; `error` of what is believed, drawn anew with each run, for ever.
    """

    method: Method = "band"
    first_error: float = 0.0
    error: float = 0.0


AS_BAND = Knowledge()


def estimated_ms(flops: float, tensor_bytes: float, largest: tuple[float, float, float], beta: float) -> float:
    """Time of a subgraph from FLOPs, bytes and time of the largest one on the same processor."""
    largest_flops, largest_bytes, largest_ms = largest
    return largest_ms * (flops + beta * tensor_bytes) / (largest_flops + beta * largest_bytes)


class Belief:
    """`Model` of a device for the networks of a phone. `whole`: a network is one piece, which runs on any processor and
    without a word calls a CPU core for what that lacks (Band without subgraphs). `profiled_ms`: what profiling took, a
    processor after the other.
    """

    def __init__(
        self, phone: Phone, knowledge: Knowledge, seed: int, *, whole: bool = False, weather: Weather = USUAL
    ) -> None:
        self._phone, self._knowledge, self._whole, self._weather = phone, knowledge, whole, weather
        self._random, self._errors = Random(f"{seed}/runs"), Random(f"{seed}/errors")
        self._cuts = {name: whole_cut(name) if whole else phone.cut(name) for name in phone.networks}
        self.profiled_ms = 0.0
        self._known = {name: self._profile(name) for name in phone.networks}
        self._believed: dict[str, Partition] = {}

    # -- the port ------------------------------------------------------------------------------------------------------

    def partition(self, network: str) -> Partition:
        if network not in self._believed:
            cut, known, error = self._cuts[network], self._known[network], self._knowledge.error
            times = {
                (one.units, processor): known[one.units, kind_of(processor)].p50_ns / 1e6 * self._off(error)
                for one in cut.subgraphs
                for processor in one.latency_ms
            }
            self._believed[network] = believed(cut, times)
        return self._believed[network]

    def legs(self, network: str, units: int, processor: str) -> Sequence[Leg]:
        kind, loaded = kind_of(processor), self._weather.loaded
        varies = self._random.lognormvariate(0.0, self._weather.spread[kind])
        return [
            Leg(leg.took_ms * varies * loaded["cpu" if leg.elsewhere else kind], leg.elsewhere)
            for leg in self._idle_legs(network, units, processor)
        ]

    def learn(self, network: str, units: int, processor: str, took_ms: float) -> None:
        if self._knowledge.method == "static" and not self._knowledge.error:
            return
        if self._knowledge.method != "static":
            self._known[network][units, kind_of(processor)].ran(round(took_ms * 1e6), 0, ALPHA)
        self._believed.pop(network, None)

    # -- what is known -------------------------------------------------------------------------------------------------

    def _off(self, error: float) -> float:
        """Draw the factor by which an estimate is off."""
        return self._errors.uniform(1 - error, 1 + error) if error else 1.0

    def _indices(self, name: str, units: int) -> Sequence[int]:
        """The stretches of a subgraph."""
        if self._whole:
            return range(len(self._phone.networks[name].stretches))
        return Network.indices(next(one.ops for one in self._cuts[name].subgraphs if one.units == units))

    def _idle_legs(self, name: str, units: int, processor: str) -> list[Leg]:
        """The legs of a run on a phone that does nothing else."""
        network, indices = self._phone.networks[name], self._indices(name, units)
        if not self._whole:
            return [Leg(self._phone.run_ms(network, indices, processor))]
        legs: list[Leg] = []
        for index in indices:
            if processor in network.stretches[index].processors:
                legs.append(Leg(self._phone.run_ms(network, [index], processor)))
            else:
                moves = 1 if index == indices[-1] else 2
                legs.append(Leg(self._phone.work_ms(network, index, CPUS[0]) + moves * MOVE_MS, CPUS))
        return legs

    def _profile(self, name: str) -> dict[tuple[int, str], Estimate]:
        """(units, kind of processor) → what is believed at the start; what was measured for it is counted."""
        found: dict[tuple[int, str], float] = {}
        cut, network = self._cuts[name], self._phone.networks[name]
        work = {one.units: network.work(self._indices(name, one.units)) for one in cut.subgraphs}
        for processor in sorted({p for one in cut.subgraphs for p in one.latency_ms}):
            kind = kind_of(processor)
            able = [one.units for one in cut.subgraphs if processor in one.latency_ms]
            largest = max(able, key=lambda units: (work[units][0], units))
            measured = [largest] if self._knowledge.method == "band" else able
            times = {units: sum(leg.took_ms for leg in self._idle_legs(name, units, processor)) for units in measured}
            self.profiled_ms += MEASURED_RUNS * sum(times.values())
            scale, beta = (*work[largest], times[largest]), BETA.get(kind, BETA_ACCELERATOR)
            for units in able:
                found[units, kind] = times.get(units) or estimated_ms(*work[units], scale, beta)
        off = {key: self._off(self._knowledge.first_error) for key in sorted(found)}
        return {key: Estimate(ms * off[key] * 1e6, 1.5, ms * 1e6, is_plain=True) for key, ms in found.items()}


def whole_cut(name: str) -> Partition:
    """A network in one piece, for any processor; the times are put in later."""
    all_of_it = Operator(f"{name}/0", frozenset(PROCESSORS))
    return partition(name, [all_of_it], {processor: {all_of_it.name: 0.0} for processor in PROCESSORS})
