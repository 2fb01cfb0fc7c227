"""What the registry knows of a kind of processor."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from appliance.runtime.processors.sessions import Sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The port and the blocking half under it; either is imported when it is first wanted, for runtimes are large."""

    processor: Callable[..., Any]
    """Of name, workers, threads_per_run and loads_parallel_max; of cores, too, where it `pins`."""
    sessions: Callable[[int, int], Sessions]
    """Of workers and threads_per_run: what serving, the measuring child and the probe share."""
    distribution: str = ""
    """What must be installed for it beside the appliance; empty: nothing."""
    pins: bool = False
    """Whether its runs can be pinned to cores. Then there may be several processors of the kind, each on its own; where
    a run has one thread, each of them runs what another one has loaded.
    """
    device: str = "cpu"
    """What it computes on, as sensors call it: `cpu`, `gpu` or `dla`."""
    nodes: tuple[str, ...] = ()
    """Device nodes that a process which computes there reads and writes."""
    reads: tuple[str, ...] = ()
    """Files and folders that such a process reads beside what every process does."""
    compiles_sizes: bool = False
    """Whether the first run of inputs of a size is slow, so that it pays to have few sizes."""
    has_memory: bool = False
    """Whether its device may have memory of its own, so that it takes `memory_bytes`: what of that is for builds."""
