"""Workloads of frames (Band §6.2): the next frame begins when the last result of this one is there.

EagleEye: each patch of a frame goes through RetinaFace, and of its faces the small ones go through FSRNet and then
ArcFace-ResNet50, those in profile through ArcFace-ResNet50, frontal ones through ArcFace-MobileNet (Fig. 13). Distream:
each EfficientDet finds objects, which go through one of two EfficientNets. Means per frame are the paper's; counts are
Poisson, all of a frame together more or less by its crowd (a gamma of mean 1): neither data set is here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

CROWD_SHAPE = 4.0
"""Of the gamma: frames of a video differ by half of the mean."""
CROWDED = 0.1
"""The share of frames that are called crowded."""


@dataclass(frozen=True, slots=True)
class Task:
    """One inference, which waits for the one before it (by its place in the frame), if any."""

    network: str
    after: int | None = None


Frame = tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Workflow:
    """`first` comes `firsts` times a frame; `branches`: a chain of networks → how often a frame has it."""

    first: str
    firsts: float
    branches: Mapping[tuple[str, ...], float]


EAGLEEYE = Workflow(
    "RetinaFace",
    6.0,
    {("FSRNet", "ArcFace-ResNet50"): 1.5, ("ArcFace-ResNet50",): 0.8, ("ArcFace-MobileNet",): 5.2},
)
DISTREAM = Workflow("EfficientDet-Lite", 5.0, {("EfficientNet-Lite1",): 5.6, ("EfficientNet-Lite2",): 0.7})


def frames(workflow: Workflow, count: int, seed: int) -> list[Frame]:
    """So many frames of a video."""
    random = Random(f"{seed}/frames")
    return [_frame(workflow, random) for _ in range(count)]


def crowded(workflow: Workflow, count: int, seed: int) -> list[Frame]:
    """So many frames, the most crowded tenth of a longer video."""
    many = frames(workflow, round(count / CROWDED), seed)
    return sorted(many, key=len, reverse=True)[:count]


def _frame(workflow: Workflow, random: Random) -> Frame:
    crowd = random.gammavariate(CROWD_SHAPE, 1 / CROWD_SHAPE)
    firsts = 1 + _poisson((workflow.firsts - 1) * crowd, random)
    tasks = [Task(workflow.first) for _ in range(firsts)]
    for chain, mean in workflow.branches.items():
        for _ in range(_poisson(mean * crowd, random)):
            after = random.randrange(firsts)
            for network in chain:
                tasks.append(Task(network, after))
                after = len(tasks) - 1
    return tuple(tasks)


def _poisson(mean: float, random: Random) -> int:
    """Arrivals of a process of rate 1 until `mean`."""
    count, at = 0, random.expovariate(1.0)
    while at < mean:
        count, at = count + 1, at + random.expovariate(1.0)
    return count
