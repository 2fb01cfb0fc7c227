"""What memory asks for every build that comes, and what the residency arbiter answers: which builds leave, and what
comes in their place.

The arbiter enacts nothing; the memory manager checks the plan and enacts it as one transaction.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class ResidentBuild(NamedTuple):
    """A build in memory at the time of the decision.

    A tuple: one is made of every build for every decision.
    """

    build_id: str
    bytes: int
    last_used_ns: int
    pinned: bool
    """In use by queued or running requests: never a victim."""
    kept_bytes: int = 0
    """What it keeps when it leaves, for it sleeps then; 0 = it is unloaded."""

    @property
    def freed_bytes(self) -> int:
        """What its leaving frees."""
        return self.bytes - self.kept_bytes


class Process(NamedTuple):
    """A process beside builds: a name that tells it from others, and the bytes that it takes by itself."""

    name: Hashable
    bytes: int
    """With what has to begin before it."""
    tenant: str | None = None
    """Tenant that the process is charged to; None: none."""
    shared_bytes: int = 0
    """Bytes of what has to begin before it, which are charged to no tenant."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What a tenant has in memory now, beside its share."""

    tenant: str
    held_bytes: int
    guarantee_bytes: int
    ceiling_bytes: int | None


@dataclass(frozen=True, slots=True)
class Replacement:
    """`build_id` comes in the place of the victim, so that its application stays warm (EM-14)."""

    victim: str
    build_id: str
    resident_bytes: int
    peak_bytes: int

    def need_bytes(self, asleep: Mapping[str, int]) -> int:
        """What its load, or its wake, needs free before it starts; `asleep`: build → what it keeps."""
        grown = self.grown_bytes(asleep)
        return grown if self.build_id in asleep else max(self.peak_bytes, grown)

    def grown_bytes(self, asleep: Mapping[str, int]) -> int:
        """What it takes more when it is there than now."""
        return max(0, self.resident_bytes - asleep.get(self.build_id, 0))


def needed_in_turn(newcomer_bytes: int, replacements: Sequence[Replacement], asleep: Mapping[str, int]) -> int:
    """What must be free for replacements that load one after the other, and then a newcomer that needs so much: no two
    of their peaks fall together.
    """
    grown = [replacement.grown_bytes(asleep) for replacement in replacements]
    peaks = (r.need_bytes(asleep) - bytes_ for r, bytes_ in zip(replacements, grown, strict=True))
    return sum(grown) + max((newcomer_bytes, *peaks))


class Asked(NamedTuple):
    """A request that waits for room by itself, so that it can have another build where that finds room first."""

    since_ns: int
    """When it began to wait."""
    instead: Collection[str] = ()
    """Builds that would do in the place of the one asked for, where that finds no room."""


class NoRoomYet(Exception):
    """Too little memory is free for a load now. A change of what is in memory may help, or the time `again_ns`."""

    def __init__(self, again_ns: int) -> None:
        super().__init__("too little memory is free now")
        self.again_ns = again_ns


@dataclass(frozen=True, slots=True)
class RoomProblem:
    """`need_bytes` must become free in addition to `free_bytes`, for `build_id`."""

    now_ns: int
    build_id: str
    need_bytes: int
    free_bytes: int
    resident: tuple[ResidentBuild, ...]
    """Resident builds, and those being loaded, which count as pinned."""
    leaving: frozenset[str] = frozenset()
    """Builds that are on their way out, or wait for room themselves: none of them can be a replacement."""
    is_urgent: bool = True
    """A request waits for it; otherwise it is brought in the background, ahead of time."""
    since_ns: int | None = None
    """Since when the request has waited for room; None = it has just come."""
    asleep: Mapping[str, int] = field(default_factory=dict)
    """Builds that sleep, or wait for room to wake, and what they keep; that is not in `free_bytes`."""
    instead: Collection[str] = ()
    """Builds that would do in the place of this one: where the policy would rather have a smaller one of them, there is
    no room for this one.
    """
    tenant: str | None = None
    """Tenant whose request waits for a process to begin; `build_id` is empty then."""
    is_trial: bool = False
    """It is only asked what would be the plan, which is neither enacted nor recorded."""


@dataclass(frozen=True, slots=True)
class RoomPlan:
    """Victims in the order of leaving; `sufficient` says whether the wanted build fits afterwards.

    An insufficient plan has no victims.
    """

    victims: tuple[str, ...]
    freed_bytes: int
    sufficient: bool
    reason: str
    replacements: tuple[Replacement, ...] = ()
    """Smaller builds that come for some of the victims, out of what the victims free: at once where there is room for
    all their peaks, else one after the other, and the wanted build after them."""
    again_ns: int | None = None
    """Of an insufficient plan: by then at the latest the answer may be another, though nothing else has changed."""
    spares_sleepers: bool = False
    """An insufficient plan keeps sleeping builds too, though their bytes would make room."""
    lost_bytes: int = 0
    """Bytes of victims that applications or planners would miss, and of sleepers that go for good, less what comes in
    their place: idle processes end before these leave."""
    dismissed: tuple[str, ...] = ()
    """Builds that sleep and go for good, for there was no room otherwise; memory names them, not the arbiter."""


class Arbiter(Protocol):
    """Port: decides who is in memory. The residency room implements it; memory asks it about every load."""

    def is_bounded(self, build_id: str) -> bool:
        """Whether room is not all that the build needs: whoever owns it has a ceiling."""
        ...

    def plan(self, problem: RoomProblem) -> RoomPlan:
        """Total: an insufficient plan where nothing can be done."""
        ...

    def may_leave(self, problem: RoomProblem, builds: Collection[str], process_bytes: int) -> bool:
        """Whether builds may leave, all for good and with the process that holds them, where there is no room
        otherwise. `process_bytes`: what the process takes by itself.
        """
        ...

    def order_of_leaving(self, sleepers: Sequence[ResidentBuild]) -> list[str]:
        """Builds that sleep, with what they keep for their bytes: whoever is first goes for good first."""
        ...

    def asleep_above_ceiling(
        self, sleepers: Sequence[ResidentBuild], residents: Callable[[], Iterable[ResidentBuild]]
    ) -> Collection[str]:
        """Sleepers that must go for every tenant to be below its ceiling beside what it has awake, one of `residents`;
        they are only asked for where there is a ceiling.
        """
        ...
