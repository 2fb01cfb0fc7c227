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
from reproduce.band.device import Leg, Times, believed
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
    without a word calls a CPU core for what that lacks (Band without subgraphs).
    """

    def __init__(
        self,
        phone: Phone,
        knowledge: Knowledge,
        seed: int,
        *,
        whole: bool = False,
        weather: Weather = USUAL,
    ) -> None:
        self._phone, self._knowledge, self._whole, self._weather = phone, knowledge, whole, weather
        self._random = Random(f"{seed}/runs")
        self._errors = Random(f"{seed}/errors")
        self._cuts = {name: whole_cut(name) if whole else phone.cut(name) for name in phone.networks}
        self._indices = {
            (name, one.units): Network.indices(one.ops) for name, cut in self._cuts.items() for one in cut.subgraphs
        }
        self._known = {name: self._profile(name) for name in phone.networks}
        self._believed: dict[str, Partition] = {}
        self.profiled_ms = 0.0
        """What profiling took, one processor at a time."""
        for name in phone.networks:
            self.profiled_ms += self._profiling_ms(name)

    # -- the port ------------------------------------------------------------------------------------------------------

    def partition(self, network: str) -> Partition:
        found = self._believed.get(network)
        if found is None:
            found = self._believed[network] = believed(self._cuts[network], self._times(network))
        return found

    def legs(self, network: str, units: int, processor: str) -> Sequence[Leg]:
        kind = kind_of(processor)
        loaded = self._weather.loaded
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

    def _times(self, network: str) -> Times:
        error = self._knowledge.error
        return {
            (one.units, processor): self._known[network][one.units, kind_of(processor)].p50_ns
            / 1e6
            * (self._errors.uniform(1 - error, 1 + error) if error else 1.0)
            for one in self._cuts[network].subgraphs
            for processor in one.latency_ms
        }

    def _idle_ms(self, network: str, units: int, processor: str) -> float:
        return sum(leg.took_ms for leg in self._idle_legs(network, units, processor))

    def _idle_legs(self, name: str, units: int, processor: str) -> list[Leg]:
        """Of a run on a phone that does nothing else."""
        network = self._phone.networks[name]
        if not self._whole:
            return [Leg(self._phone.run_ms(network, self._indices[name, units], processor))]
        legs: list[Leg] = []
        for index, stretch in enumerate(network.stretches):
            if processor in stretch.processors:
                legs.append(Leg(self._phone.run_ms(network, [index], processor)))
            else:
                moves = 1 if index == len(network.stretches) - 1 else 2
                legs.append(Leg(self._phone.work_ms(network, index, CPUS[0]) + moves * MOVE_MS, CPUS))
        return legs

    def _profile(self, name: str) -> dict[tuple[int, str], Estimate]:
        """(units, kind of processor) → what is believed at the start."""
        found: dict[tuple[int, str], float] = {}
        cut = self._cuts[name]
        for processor in sorted({p for one in cut.subgraphs for p in one.latency_ms}):
            kind = kind_of(processor)
            able = [one for one in cut.subgraphs if processor in one.latency_ms]
            largest = max(able, key=lambda one: (self._work(name, one.units)[0], one.units))
            measured_ms = self._idle_ms(name, largest.units, processor)
            for one in able:
                if self._knowledge.method == "band":
                    scale = (*self._work(name, largest.units), measured_ms)
                    ms = estimated_ms(*self._work(name, one.units), scale, BETA.get(kind, BETA_ACCELERATOR))
                else:
                    ms = self._idle_ms(name, one.units, processor)
                found[one.units, kind] = ms
        error = self._knowledge.first_error
        off = {key: self._errors.uniform(1 - error, 1 + error) if error else 1.0 for key in sorted(found)}
        return {key: Estimate(ms * off[key] * 1e6, 1.5, ms * 1e6, is_plain=True) for key, ms in found.items()}

    def _profiling_ms(self, name: str) -> float:
        cut, total_ms = self._cuts[name], 0.0
        for processor in sorted({p for one in cut.subgraphs for p in one.latency_ms}):
            times = [self._idle_ms(name, one.units, processor) for one in cut.subgraphs if processor in one.latency_ms]
            total_ms += MEASURED_RUNS * (max(times) if self._knowledge.method == "band" else sum(times))
        return total_ms

    def _work(self, name: str, units: int) -> tuple[float, float]:
        """FLOPs and tensor bytes of a subgraph."""
        network: Network = self._phone.networks[name]
        if self._whole:
            last = len(network.stretches) - 1
            return network.flops(0, last), network.tensor_bytes(0, last)
        indices = self._indices[name, units]
        return network.flops(indices[0], indices[-1]), network.tensor_bytes(indices[0], indices[-1])


def whole_cut(name: str) -> Partition:
    """A network in one piece, for any processor; the times are put in later."""
    all_of_it = Operator(f"{name}/0", frozenset(PROCESSORS))
    return partition(name, [all_of_it], {processor: {all_of_it.name: 0.0} for processor in PROCESSORS})
