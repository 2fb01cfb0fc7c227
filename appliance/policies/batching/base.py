"""The batching family: how many of the requests that wait for one build go into its next run together.

It is asked when a worker is free and more than one request waits, so a worker never waits for a batch to fill. A policy
reads no clock and draws no number of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """One whose rows may share a run with those of the others. `end_by_ns`: from now; None: whenever. `alone_ns`: what
    it takes by itself, where its inputs are smaller than those of the others; None: as any run of so many items.
    """

    items: int
    end_by_ns: int | None = None
    alone_ns: int | None = None


@dataclass(frozen=True, slots=True)
class BatchingInput:
    """`requests`: at least one, in the order in which they would run one by one. `run_ns`: what a run of so many items
    takes, by the profile, with inputs of the largest size. `free_ns`: when each of the other workers is expected to be
    free, from now.
    """

    requests: Sequence[WaitingRequest]
    items_max: int
    run_ns: Callable[[int], int]
    free_ns: Sequence[int] = ()


class BatchingPolicy(Protocol):
    """Total and deterministic."""

    @property
    def shares(self) -> bool:
        """Whether it ever takes more than one request."""
        ...

    def together(self, problem: BatchingInput) -> int:
        """How many of the requests, from the first on, the next run takes; at least one."""
        ...
