"""What clients send: who is there when, at which rate, and how many objects each frame shows; drawn beforehand.

Objects come at random and stay for some seconds, so their number in a frame is Poisson about the scene's mean and
changes within seconds, not from frame to frame (§3.5, footnote 6).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from appliance.clock import NS_PER_S
from reproduce.scrooge.applications import Application

CLIENTS = 12
STAY_S = 5.0
"""An object in the picture, in the mean."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A client: seconds of its first and last frame, frames a second."""

    joins_s: float
    leaves_s: float
    fps: float


@dataclass(frozen=True, slots=True)
class Sent:
    """A frame: nanoseconds after the start, and its objects by kind."""

    at_ns: int
    objects: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Workload:
    """`frames` in the order of time."""

    duration_s: float
    streams: tuple[Stream, ...]
    frames: Sequence[Sent]

    def fps_at(self, at_s: float) -> float:
        """What those who are there send: they said so when they joined (SC-03)."""
        return sum(one.fps for one in self.streams if one.joins_s <= at_s < one.leaves_s)


def draw(application: Application, seed: int, duration_s: float, clients: int = CLIENTS) -> Workload:
    """Each client joins at one and leaves at the other of two instants, both uniform in the duration."""
    streams, frames = [], []
    for index in range(clients):
        rng = Random(f"{seed}/{application.name}/{index}")
        joins_s, leaves_s = sorted(rng.uniform(0.0, duration_s) for _ in range(2))
        stream = Stream(joins_s, leaves_s, rng.uniform(*application.fps))
        streams.append(stream)
        frames += _frames(stream, rng.choice(application.scenes), rng)
    return Workload(duration_s, tuple(streams), sorted(frames, key=lambda frame: frame.at_ns))


def _frames(stream: Stream, scene: Mapping[str, float], rng: Random) -> list[Sent]:
    count = int((stream.leaves_s - stream.joins_s) * stream.fps) + 1
    stays = math.exp(-1.0 / (stream.fps * STAY_S))
    there = {kind: _poisson(rng, mean) for kind, mean in scene.items()}
    found = []
    for number in range(count):
        found.append(Sent(round((stream.joins_s + number / stream.fps) * NS_PER_S), dict(there)))
        for kind, mean in scene.items():
            stayed = sum(rng.random() < stays for _ in range(there[kind]))
            there[kind] = stayed + _poisson(rng, mean * (1.0 - stays))
    return found


def _poisson(rng: Random, mean: float) -> int:
    """By Knuth's product of uniforms: means are small."""
    limit, product, count = math.exp(-mean), rng.random(), 0
    while product > limit:
        product *= rng.random()
        count += 1
    return count
