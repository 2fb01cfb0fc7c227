"""Who sends frames to pipelines: clients that join and leave, and others at the times of a scenario; all drawn before
it starts, so that no policy changes what it is asked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from appliance.lab.loop import START_NS
from appliance.lab.pipeline_shapes import ClientShape, PipelineShape
from appliance.lab.workload import nanoseconds, poisson_times, read_times


@dataclass(frozen=True, slots=True)
class Sender:
    """One client, or all who did not join. `fps` None: it sends without joining. Times are absolute."""

    name: str
    fps: float | None
    frames_ns: Sequence[int]
    leaves_ns: int


def senders_of(entry: PipelineShape, seed: int, duration_s: float | None, base_dir: str) -> list[Sender]:
    """Raises: Malformed (of a file)."""
    found: list[Sender] = []
    times = list(_times(entry, seed, duration_s, base_dir))
    if times:
        frames = [START_NS + nanoseconds(at_s) for at_s in times if duration_s is None or at_s < duration_s]
        found.append(Sender("anybody", None, frames, 0))
    for index, clients in enumerate(entry.clients):
        assert duration_s is not None, "checked when it was read"
        rng = Random(f"{seed}/pipelines/{entry.name}/clients/{index}")
        found += _clients(clients, index, rng, duration_s)
    return found


def _times(entry: PipelineShape, seed: int, duration_s: float | None, base_dir: str) -> Iterator[float]:
    if entry.rate_rps is not None:
        assert duration_s is not None, "checked when it was read"
        return poisson_times(Random(f"{seed}/pipelines/{entry.name}/frames"), entry.rate_rps, duration_s)
    if entry.csv is not None:
        return iter(sorted(read_times(Path(base_dir) / entry.csv, f"pipelines.{entry.name}.csv")))
    return iter(sorted(entry.times_s or ()))


def _clients(shape: ClientShape, index: int, rng: Random, duration_s: float) -> Iterator[Sender]:
    arrives_s = shape.arrive_s
    for number in range(1, shape.count + 1):
        if shape.arrival_rps is not None:
            arrives_s += rng.expovariate(shape.arrival_rps)
        leaves_s = min(duration_s, arrives_s + (shape.stay_s or duration_s))
        phase_s = rng.random() / shape.fps
        count = max(0, int((leaves_s - arrives_s - phase_s) * shape.fps) + 1)
        if arrives_s < duration_s:
            frames = [START_NS + nanoseconds(arrives_s + phase_s + n / shape.fps) for n in range(count)]
            yield Sender(f"client {index}-{number}", shape.fps, frames, START_NS + nanoseconds(leaves_s))
