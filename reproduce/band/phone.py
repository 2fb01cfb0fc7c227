"""An emulated Pixel 4 and the paper's networks on it: what is given, what is assumed, what is fitted.

- *Given* (Table 1): InceptionV4 takes 25.29 ms on the NPU and 25.43 ms on the DSP.
- *Assumed*: how much the networks compute (public figures), how much of a processor's speed they use (`SHARE`; networks
  of depthwise convolutions use little of an accelerator; RetinaFace takes about as long everywhere, as §6.3.1 says),
  which operators are fallbacks (§3.2.2: FSRNet's wide transposed convolutions), what a run and a move cost.
- *Fitted* (`FITTED`): the speeds of a CPU core and of the GPU, and how early the first fallback
  operator comes in the two networks that the baseline puts on the DSP and on the NPU. Three numbers, for three of the
  paper's: 2.6 and 4.9 frames/s of the two baselines, 5.3 of Band on CPU and GPU.

Networks are chains of operators; an operator here is a stretch with the same processors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from appliance.policies.dispatch.partition import Operator, Partition, partition

CPUS = ("cpu-0", "cpu-1")
"""Two single-threaded workers on big cores (§6.1)."""
GPU, DSP, NPU = "gpu", "dsp", "npu"
PROCESSORS = (*CPUS, GPU, DSP, NPU)

INCEPTION_V4_GMAC = 12.3
NPU_SPEED, DSP_SPEED = INCEPTION_V4_GMAC / 0.02529, INCEPTION_V4_GMAC / 0.02543
"""10^9 multiply-accumulates a second, dense convolutions: Table 1 at one model."""
RUN_MS: Mapping[str, float] = {GPU: 2.0, DSP: 1.0, NPU: 1.0}
"""A call of an accelerator, beside its work; none on the CPU."""
MOVE_MS = 1.0
"""Results from one processor to another."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Speeds in 10^9 multiply-accumulates a second; `first` as a share of a network's work."""

    cpu_speed: float
    gpu_speed: float
    first: float


FITTED = Fitted(57.5, 168.0, 0.22)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Adjacent operators. `share` of the network's work; `out_bytes` of what goes on to the next."""

    share: float
    processors: frozenset[str]
    out_bytes: float


EVERYWHERE = frozenset(PROCESSORS)
NO_ACCELERATOR = frozenset((*CPUS, GPU))
CPU_ONLY = frozenset(CPUS)


@dataclass(frozen=True)
class Network:
    """`use`: the share of its dense speed that a processor reaches."""

    name: str
    gmac: float
    use: Mapping[str, float]
    in_bytes: float
    stretches: tuple[Stretch, ...]

    @cached_property
    def operators(self) -> tuple[Operator, ...]:
        names = [f"{self.name}/{index}" for index in range(len(self.stretches))]
        return tuple(
            Operator(name, one.processors, tuple(names[index - 1 : index]) if index else ())
            for index, (name, one) in enumerate(zip(names, self.stretches, strict=True))
        )

    @staticmethod
    def indices(operators: Sequence[str]) -> tuple[int, ...]:
        """Which stretches these operators are."""
        return tuple(int(name.rpartition("/")[2]) for name in operators)

    def work(self, indices: Sequence[int]) -> tuple[float, float]:
        """FLOPs of adjacent stretches, and bytes of their input and output."""
        first, last = indices[0], indices[-1]
        in_bytes = self.stretches[first - 1].out_bytes if first else self.in_bytes
        flops = 2e9 * self.gmac * sum(one.share for one in self.stretches[first : last + 1])
        return flops, in_bytes + self.stretches[last].out_bytes


@dataclass(frozen=True)
class Phone:
    """What runs take on it, without noise."""

    networks: Mapping[str, Network]
    fitted: Fitted = FITTED

    def work_ms(self, network: Network, index: int, processor: str) -> float:
        """One stretch, without the call."""
        speed = self._speed(processor) * network.use[kind_of(processor)]
        return 1000 * network.gmac * network.stretches[index].share / speed

    def run_ms(self, network: Network, indices: Sequence[int], processor: str) -> float:
        """A run of these stretches."""
        return RUN_MS.get(processor, 0.0) + sum(self.work_ms(network, index, processor) for index in indices)

    def cut(self, name: str) -> Partition:
        """Units and subgraphs, with the times of their work."""
        network = self.networks[name]
        operators = [*enumerate(network.operators)]
        latency_ms = {p: {one.name: self.work_ms(network, at, p) for at, one in operators} for p in PROCESSORS}
        return partition(name, network.operators, latency_ms)

    def _speed(self, processor: str) -> float:
        if processor in CPUS:
            return self.fitted.cpu_speed
        return {GPU: self.fitted.gpu_speed, DSP: DSP_SPEED, NPU: NPU_SPEED}[processor]


def kind_of(processor: str) -> str:
    return "cpu" if processor in CPUS else processor


DENSE = {"cpu": 1.0, GPU: 1.0, DSP: 1.0, NPU: 1.0}
DEPTHWISE = {"cpu": 0.6, GPU: 0.5, DSP: 0.25, NPU: 0.3}
ALIKE = {"cpu": 0.6, GPU: 0.3, DSP: 0.07, NPU: 0.07}


def eagleeye(first: float) -> dict[str, Network]:
    """The networks of EagleEye; `first`: see `Fitted`."""
    rest = (0.92 - first) / 2
    retina = [(0.62, EVERYWHERE, 200), (0.04, NO_ACCELERATOR, 260), (0.30, EVERYWHERE, 90), (0.04, NO_ACCELERATOR, 60)]
    fsr = [(first, EVERYWHERE, 260), (0.04, NO_ACCELERATOR, 500), (rest, EVERYWHERE, 260)]
    fsr += [(0.04, NO_ACCELERATOR, 500), (rest, EVERYWHERE, 200)]
    resnet = [(first, EVERYWHERE, 200), (0.02, NO_ACCELERATOR, 200), (0.98 - first, EVERYWHERE, 2)]
    return _by_name(
        _network("RetinaFace", 0.9, ALIKE, 307, retina),
        _network("FSRNet", 4.0, DENSE, 49, fsr),
        _network("ArcFace-MobileNet", 0.45, DEPTHWISE, 38, [(0.97, EVERYWHERE, 25), (0.03, CPU_ONLY, 1)]),
        _network("ArcFace-ResNet50", 6.3, DENSE, 38, resnet),
    )


def distream() -> dict[str, Network]:
    """Networks like Distream's: a detector of many fallbacks, and two classifiers without any."""
    joined = [(0.02, NO_ACCELERATOR, 60), (0.08, EVERYWHERE, 60)]
    detector = [(0.55, EVERYWHERE, 100), *joined, *joined, *joined, (0.02, NO_ACCELERATOR, 60)]
    detector += [(0.10, EVERYWHERE, 60), (0.03, CPU_ONLY, 1)]
    return _by_name(
        _network("EfficientDet-Lite", 0.98, DEPTHWISE, 307, detector),
        _network("EfficientNet-Lite1", 0.63, DEPTHWISE),
        _network("EfficientNet-Lite2", 0.90, DEPTHWISE),
    )


def deepeye() -> dict[str, Network]:
    """The networks of the four applications (§6.4)."""
    return _by_name(
        _network("EfficientNet-Lite2", 0.90, DEPTHWISE),
        _network("EfficientNet-Lite3", 1.44, DEPTHWISE),
        _network("InceptionV3", 5.7, DENSE),
        _network("InceptionV4", INCEPTION_V4_GMAC, DENSE),
    )


def _network(
    name: str,
    gmac: float,
    use: Mapping[str, float],
    in_kb: float = 200,
    stretches: Sequence[tuple[float, frozenset[str], float]] = ((1.0, EVERYWHERE, 4),),
) -> Network:
    """A network of stretches (share, processors, kilobytes); by default a classifier without fallbacks."""
    made = tuple(Stretch(share, processors, kilobytes * 1000) for share, processors, kilobytes in stretches)
    return Network(name, gmac, use, in_kb * 1000, made)


def _by_name(*networks: Network) -> dict[str, Network]:
    return {one.name: one for one in networks}
