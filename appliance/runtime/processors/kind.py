"""What the registry knows of a kind of processor."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.runtime.processors.sessions import GuardSessions, InferenceSessions


@dataclass(frozen=True, slots=True, kw_only=True)
class InGuard:
    """What a kind needs to compute in a guard, which sees neither libraries nor devices any more."""

    base_bytes: int
    """What such a process takes by itself, about: what the kind's libraries take, and what its builds share."""
    server_bytes: int
    """What the process takes that guards are forked of, about; it begins with the first of them, and stays."""
    get_ready: Callable[[], None]
    """Reads all that guards will need of the libraries, in the process that they are forked of; starts no thread that
    outlives it.
    """
    sessions: Callable[[int, int, Any], GuardSessions]
    """Of workers and threads_per_run, and of what a guard has opened of `/proc` (`cpu.mapped.ProcFiles`)."""
    looked_for: Callable[[], Iterable[Path]] = tuple
    """Files of the libraries that these look for, and do not read, though they are open: a guard sees empty ones. It
    blocks.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The port and the blocking half under it; either is imported when it is first wanted, for runtimes are large."""

    processor: Callable[..., Any]
    """Of name, workers, threads_per_run and loads_parallel_max; of cores, too, where it `pins`."""
    sessions: Callable[[int, int], InferenceSessions]
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
    guard: InGuard | None = None
    """What it needs in a guard; None: no guard computes on it."""
    has_memory: bool = False
    """Whether its device may have memory of its own, so that it takes `memory_bytes`: what of that is for builds."""
