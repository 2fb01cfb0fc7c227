"""Finds `phone.FITTED`: the device on which the two baselines and Band on CPU and GPU come out as the paper says."""

from statistics import fmean

from reproduce.band.experiments import FRAMES, eagleeye_setup
from reproduce.band.frames import EAGLEEYE, frames
from reproduce.band.phone import CPUS, GPU, Fitted
from reproduce.band.runs import play
from reproduce.band.systems import Setup, System, device

FIXED_FPS, MAX_PARTITION_FPS, CPU_GPU_FPS = 11.8 / 4.53, 11.8 / 2.42, 5.3
"""Of the paper (§3.1, §6.2): the baselines by Band's speed-up over each."""
SEEDS = range(1, 6)
STEPS = 8


def measured(fitted: Fitted, seeds: range = SEEDS, count: int = FRAMES) -> tuple[float, float, float]:
    """Frames a second of the two baselines, and of Band on CPU and GPU; means over seeds."""
    setup = eagleeye_setup(fitted)
    few = Setup(setup.phone, setup.homes, processors=(*CPUS, GPU))

    def fps(of: Setup, system: System) -> float:
        return fmean(play(device(of, system, seed)[0], frames(EAGLEEYE, count, seed)).fps for seed in seeds)

    return fps(setup, "fixed"), fps(setup, "max partition"), fps(few, "band")


def fit(start: Fitted, seeds: range = SEEDS, count: int = FRAMES) -> Fitted:
    """Each number in turn by the one that it moves most: CPU speed by the second, GPU speed by the third, and by the
    first how much of a network comes after its first fallback.
    """
    found = start
    for _ in range(STEPS):
        fixed, max_partition, cpu_gpu = measured(found, seeds, count)
        quicker = MAX_PARTITION_FPS / max_partition
        after = (1 - found.first) * (fixed * quicker / FIXED_FPS) ** 1.2
        found = Fitted(
            found.cpu_speed * quicker,
            found.gpu_speed * (CPU_GPU_FPS / cpu_gpu / quicker**0.5) ** 1.5,
            min(0.9, max(0.02, 1 - after)),
        )
    return found
