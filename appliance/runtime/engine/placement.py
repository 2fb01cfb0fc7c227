"""Where a call runs: the choice between groups of processors.

The scheduler has closed the options that a call may not use now. A policy then chooses one call and one of its options;
an option on a group that is busy means that the call ends sooner by waiting for it.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from appliance.runtime.engine.work import Call, Option


class Candidate(NamedTuple):
    """A call with the options that it may use now."""

    call: Call
    options: Sequence[Option]
    groups: tuple[int, ...]
    """Groups that it may use sooner or later: of a network in parts also those that run none of what is next."""


@dataclass(slots=True, eq=False)
class Placed:
    """A choice. `start_in_ns`: time until a worker of the group is free."""

    call: Call
    option: Option
    start_in_ns: int
    holds_ns: int
    """For how long it would hold its worker."""
    ops: tuple[str, ...] = ()
    """Of a network in parts: what runs next."""
    worth: float = 1.0
    """See `Run`."""


class Placement(Protocol):
    """A policy between groups. Deterministic, without a clock."""

    requeues_at_head: bool
    """Where the rest of a network in parts goes: before calls that have not begun, else to its own place (Band's
    EnqueueRemaining).
    """

    def place(
        self, candidates: Sequence[Candidate], free_ns: Mapping[int, Sequence[int]], now_ns: int
    ) -> Placed | None:
        """Return the call that is placed next; None: no candidate can run anywhere.

        `free_ns`: group → when each of its workers is free, from now, as a heap.
        """
        ...

    def begins(self, placed: Placed, now_ns: int) -> None:
        """A call begins as it was placed last."""
        ...


class FirstInLine:
    """The first candidate, where its run ends first. With one group there is nothing else to choose."""

    requeues_at_head = True

    def place(
        self, candidates: Sequence[Candidate], free_ns: Mapping[int, Sequence[int]], now_ns: int
    ) -> Placed | None:
        """See `Placement`."""
        for call, options, _ in candidates:
            ends = [
                (free_ns[one.group][0] + one.run_ns, at) for at, one in enumerate(options) if free_ns.get(one.group)
            ]
            if ends:
                option = options[min(ends)[1]]
                return Placed(call, option, free_ns[option.group][0], option.run_ns, worth=worth(call, option))
        return None

    def begins(self, placed: Placed, now_ns: int) -> None:
        """See `Placement`."""


def worth(call: Call, option: Option) -> float:
    """Return what a nanosecond in a group is worth against the group that runs a call quickest."""
    if len(call.options) == 1 or not option.run_ns:
        return 1.0
    return min(one.run_ns for one in call.options) / option.run_ns


def occupy(free_ns: Mapping[int, list[int]], placed: Placed) -> None:
    """Give a worker of the group to a call that waits for it: others are placed behind."""
    heapq.heapreplace(free_ns[placed.option.group], placed.start_in_ns + placed.holds_ns)
