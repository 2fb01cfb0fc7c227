"""The eviction family (Edge-MultiAI §III-B): which variant of which application is in memory, so that a request finds
one.

A policy reads no clock, draws no random number and does nothing; the memory manager checks the plan and enacts it as
one transaction. Equal problems get equal plans; ties break by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import nan
from operator import attrgetter
from typing import Literal, NamedTuple, Protocol

from appliance.policies.residency.figures import NEVER, Figures, packed

_NS_PER_S = 10**9
_KEPT = 8192
"""Applications of which what follows from their options is kept, by as many residents as each may have."""
_name, _bytes, _accuracy = attrgetter("name"), attrgetter("bytes"), attrgetter("accuracy")

IN_USE = 2
"""Priority of a wish for what a planner goes on with; lower ones are for what it only has until then, or had lately."""

PROMISED = 1 << 30
"""Priority of a wish for what promises need, which no policy breaks, nor brings: the application keeps that variant, or
a more accurate one, if it has such a one in memory."""

Outcome = Literal["warm", "cold", "failed", "skipped"]
"""`failed`: a request finds no room; `skipped`: what was to be brought ahead of one (`procure`) finds none."""
Intent = Literal["serve", "procure", "rebalance"]


@dataclass(frozen=True, slots=True)
class Option:
    """A variant of an application's group."""

    name: str
    bytes: int
    peak_bytes: int
    """Needed while it loads; never less than `bytes`."""
    accuracy: float
    """In one unit for all applications of a problem.

    The box and the lab give points of per cent, which is what `expected-utility`
    weighs cold starts in; a problem of `appliance plan` has the unit of its source."""
    load_ns: int
    """Until it is there; of one that sleeps, or will when it leaves, what its wake takes."""
    sleeps: bool = False
    """It comes by a wake; `bytes` and `peak_bytes` are without what it keeps asleep."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A planner asks that a variant be kept (or brought) until a time; higher priorities are heard first."""

    variant: str
    until_ns: int
    priority: int = 0
    distance: int = 0
    """Above 0 it is a neighbour, so many places from what is in use: only for memory that nobody else wants
    (`neighbours.py`), and not told to eviction policies.
    """
    is_substitute: bool = False
    """It would do in the place of what is in use, where memory is short: neither brought nor kept for that, and no wish
    to eviction policies, but a variant that they may choose.
    """


class Rate(NamedTuple):
    """So many requests since a time: the silence since the last one counts, so the rate falls while nobody asks."""

    requests: float
    since_ns: int

    def rps(self, now_ns: int) -> float:
        """Requests per second until now."""
        return self.requests * _NS_PER_S / max(1, now_ns - self.since_ns)


@dataclass(frozen=True)
class ApplicationState:
    """An application at the time of the decision, but for what depends on that time or on who asks.

    So it is the same object in every decision until the application itself changes, and what follows from it is found
    once.
    """

    name: str
    options: tuple[Option, ...]
    resident: str | None
    pinned: bool = False
    """Its resident variant is in use by queued or running requests, or is being loaded: never a victim."""
    last_request_ns: int | None = None
    next_request_ns: int | None = None
    """When the next request is predicted; None = not expected."""
    later_requests_ns: tuple[int, ...] = ()
    """When those after it are predicted, ascending, where that is known."""
    spread_ns: int | None = None
    """How far off its predictions are, in the mean; None = as those of all."""
    prediction_hit_rate: float | None = None
    """The share of its predictions that are true: a request comes for each of those, and for the others at the rate;
    None = all of them.
    """
    rate: Rate | None = None
    """Of its requests lately, where that is known."""
    tenant: str = "default"
    weight: float = 1.0
    accuracy_min: float = 0.0
    """No variant below this accuracy will do, where the group has one that reaches it."""
    wishes: tuple[Wish, ...] = ()

    @cached_property
    def rungs(self) -> "Rungs":
        """What follows from its options alone."""
        return _rungs(self.options, self.accuracy_min)

    @property
    def ladder(self) -> tuple[Option, ...]:
        """The variants that will do, most accurate first; all of them where none reaches `accuracy_min`. Never empty.

        Of equally accurate ones the smaller first, then by name.
        """
        return self.rungs.ladder

    @property
    def best(self) -> Option:
        """The most accurate variant."""
        return self.rungs.best

    @property
    def floor(self) -> Option:
        """The smallest variant that will do: what a minimalist is replaced by."""
        return self.rungs.floor

    @cached_property
    def loaded(self) -> Option | None:
        """The option that is in memory. Raises: KeyError."""
        return None if self.resident is None else self.variant(self.resident)

    @cached_property
    def held_bytes(self) -> int:
        """What it has in memory."""
        return 0 if self.loaded is None else self.loaded.bytes

    @cached_property
    def choices(self) -> tuple[Option, ...]:
        """What it may hold: every variant that will do, and what it has."""
        loaded = self.loaded
        return self.ladder if loaded is None or loaded in self.ladder else (*self.ladder, loaded)

    @cached_property
    def figures(self) -> Figures:
        """Its numbers; those of its options are those of `choices`."""
        loaded, floor, rate, next_ns = self.loaded, self.floor, self.rate, self.next_request_ns
        row = (
            NEVER if next_ns is None else next_ns,
            -1 if self.spread_ns is None else self.spread_ns,
            0 if rate is None else rate.since_ns,
            0.0 if rate is None else rate.requests,
            nan if self.prediction_hit_rate is None else self.prediction_hit_rate,
            self.weight,
            floor.accuracy,
            floor.sleeps,
            -1 if loaded is None else loaded.bytes,
            0.0 if loaded is None else loaded.accuracy,
            bool(self.wishes),
        )
        options = _packed(self.choices, loaded, floor)
        return Figures(row, () if next_ns is None else (next_ns, *self.later_requests_ns), options)

    def variant(self, name: str) -> Option:
        """The option called `name`. Raises: KeyError."""
        for option in self.rungs.options:
            if option.name == name:
                return option
        raise KeyError(name)


class Rungs(NamedTuple):
    """What follows from an application's options alone; all of it out of one tuple, for they are told apart by `is`."""

    options: tuple[Option, ...]
    ladder: tuple[Option, ...]
    best: Option
    floor: Option
    slowest_ns: tuple[int, int]
    """The longest load, and the longest wake of those that sleep; below 0 where there is none."""


@lru_cache(_KEPT)
def _rungs(options: tuple[Option, ...], accuracy_min: float) -> Rungs:
    """Kept, for the same options come with every change of an application's state."""
    ranked = sorted(options, key=_name)
    ranked.sort(key=_bytes)
    ranked.sort(key=_accuracy, reverse=True)
    enough = tuple(option for option in ranked if option.accuracy >= accuracy_min) or tuple(ranked)
    loads = [option.load_ns for option in options if not option.sleeps]
    wakes = [option.load_ns for option in options if option.sleeps]
    return Rungs(
        options,
        enough,
        ranked[0],
        min(enough, key=lambda option: (option.bytes, -option.accuracy, option.name)),
        (max(loads, default=-1), max(wakes, default=-1)),
    )


@lru_cache(_KEPT)
def _packed(choices: tuple[Option, ...], loaded: Option | None, floor: Option) -> tuple[int, bytes]:
    """Likewise their numbers."""
    return packed((o.load_ns, o.sleeps, o.bytes, o.peak_bytes, o.accuracy, o == loaded, o == floor) for o in choices)


@dataclass(frozen=True, slots=True)
class TenantShare:
    """Memory that a tenant's applications can count on, and may not exceed."""

    name: str
    guarantee_bytes: int = 0
    ceiling_bytes: int | None = None


@dataclass(frozen=True)
class ResidencyProblem:
    """Everything a policy may know.

    `serve`: a request of `request` has come; if none of its variants is resident, choose one and make room. `procure`:
    its window opens; bring its best variant, room permitting (no request waits). `rebalance`: nobody in particular asks
    (`request` is None); the policy may use what memory is free.
    """

    now_ns: int
    memory_bytes: int
    history_window_ns: int
    """H: an application requested within it is no candidate of iWS-BFE (EM-15)."""
    delta_ns: int
    """Δ: half the width of a window (EM-06)."""
    applications: tuple[ApplicationState, ...]
    request: str | None
    intent: Intent = "serve"
    tenants: tuple[TenantShare, ...] = ()
    spread_ns: int | None = None
    """How far off predictions are in the mean, of all applications; None = Δ."""
    unexpected: Mapping[str, float] = field(default_factory=dict)
    """Application → P(a request of it | the requester is active), EM-19; 0 where none is given."""

    @cached_property
    def by_name(self) -> dict[str, ApplicationState]:
        return {a.name: a for a in self.applications}

    @cached_property
    def asker(self) -> ApplicationState:
        """Who `request` is. Raises: StopIteration where nobody asks."""
        return next(application for application in self.applications if application.name == self.request)

    @cached_property
    def held_bytes(self) -> int:
        """Of all residents."""
        return sum([application.held_bytes for application in self.applications])

    def spread_ns_of(self, application: ApplicationState) -> int:
        """How far off the predictions of an application are, in the mean."""
        if application.spread_ns is not None:
            return application.spread_ns
        return self.delta_ns if self.spread_ns is None else self.spread_ns

    def rate_rps_of(self, application: ApplicationState) -> float | None:
        """Its requests per second lately, where that is known."""
        return None if application.rate is None else application.rate.rps(self.now_ns)


@dataclass(frozen=True, slots=True)
class Change:
    """`application` goes from variant `before` to `after`; None = not in memory."""

    application: str
    before: str | None
    after: str | None

    @property
    def told(self) -> str:
        """The change for a person."""
        if self.after is None:
            return f"{self.application} leaves memory"
        if self.before is None:
            return f"{self.application} comes into memory as {self.after}"
        return f"{self.application} goes from {self.before} to {self.after}"


@dataclass(frozen=True, slots=True)
class ResidencyPlan:
    """`serve` is the variant that will answer; a failed plan changes nothing.

    For `procure` and `rebalance`, `warm` means nothing was missing.
    """

    outcome: Outcome
    serve: str | None
    changes: tuple[Change, ...]
    reason: str


class EvictionPolicy(Protocol):
    """`plan` is total: where nothing can be done it returns a failed plan (`serve`) or one without changes
    (`procure`, `rebalance`).
    """

    def plan(self, problem: ResidencyProblem) -> ResidencyPlan: ...
