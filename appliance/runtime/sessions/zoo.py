"""What a session may run on: an application's variants with their frame sizes and their times by batch."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from appliance.clock import NS_PER_MS
from appliance.domain.accuracy import ACCURACY
from appliance.domain.session import Cause
from appliance.runtime.catalogue import Entry
from appliance.runtime.servable import Servable

RUN_MS_MIN = 0.1
"""No run is planned with less: what is beside it takes as long, and a plan holds no end of batches."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A variant as planners see it."""

    servable: Servable
    size: int | None
    """Longer side of its input in pixels; None: it takes any, or no pictures."""
    usual_ms: Mapping[int, float]
    """Median of a run by batch while every worker has one, as it is now."""
    worst_ms: Mapping[int, float]
    """P99 of the same."""
    at_once: int = 1
    """Runs under way at once that both are of."""

    @property
    def name(self) -> str:
        return self.servable.name

    @property
    def accuracy(self) -> float:
        """Points."""
        return self.servable.accuracy

    def takes_ns(self, batch: int, now_ns: int) -> dict[int, int]:
        """What a run takes, while every worker has one, on each group of processors that it is measured for; empty
        where there is one group.
        """
        return {
            place: times.usual.expected_ns(batch, self.at_once, now_ns)
            for place, times in self.servable.places.items()
            if times is not None
        }


@dataclass(slots=True)
class Zoo:
    """What a pool may run now."""

    rungs: list[Rung]
    is_short: bool
    """Memory keeps others out."""
    by_name: dict[str, Rung] = field(default_factory=dict)
    entry: Entry | None = None
    """What it was made of: the application as the catalogue has it, ..."""
    without: frozenset[str] = frozenset()
    """... but for these variants, ..."""
    refused: tuple[Rung, ...] = ()
    """... as they would be, for promises of accuracy still count from the best of all, ..."""
    held_beside: str = ""
    """... what keeps others out: processes beside variants (as of `SessionEnvironment`), and promises, ..."""
    until_ns: int = 0
    """... and what runs took, which is looked at again then."""

    def __post_init__(self) -> None:
        self.by_name = {rung.name: rung for rung in self.rungs}

    @property
    def best(self) -> Rung:
        """The most accurate, those that memory has refused of late among them; there has to be one."""
        return max((*self.rungs, *self.refused), key=lambda rung: (rung.accuracy, rung.name))

    def only(self, is_there: Callable[[Servable], bool]) -> "Zoo":
        """The same without what is not in memory."""
        rungs = [rung for rung in self.rungs if is_there(rung.servable)]
        others = tuple(rung for rung in self.rungs if not is_there(rung.servable))
        return Zoo(rungs, True, entry=self.entry, refused=(*self.refused, *others), held_beside=self.held_beside)

    @property
    def meaning(self) -> str:
        """What the accuracies of the variants are called (`domain.accuracy`)."""
        return ACCURACY if self.entry is None else self.entry.model.meaning

    @property
    def lack(self) -> tuple[Cause, str]:
        """Why there is nothing to run."""
        if self.is_short:
            return Cause.MEMORY, f"no variant with enough {self.meaning} fits into memory{self.held_beside}"
        return Cause.PROCESSOR, f"no variant with enough {self.meaning} is in service and measured"


def zoo_of(
    entry: Entry,
    floor: float,
    workers: int,
    now_ns: int,
    fits: Callable[[Servable], bool],
    without: Collection[str] = (),
) -> tuple[list[Rung], bool, list[Rung]]:
    """The variants of at least `floor` points that are measured and fit into memory, and whether memory is what keeps
    others out; and those of `without`, variants by name that memory has refused of late, which would be among them."""
    rungs: list[Rung] = []
    refused: list[Rung] = []
    is_short = False
    for servable in entry.order:
        if servable.accuracy < max(floor, entry.application.accuracy_min) or servable.profile is None:
            continue
        if not fits(servable):
            is_short = True
            continue
        (refused if servable.name in without else rungs).append(_rung(servable, workers, now_ns))
    return rungs, is_short or bool(refused), refused


def _rung(servable: Servable, workers: int, now_ns: int) -> Rung:
    assert servable.profile is not None
    assert servable.times is not None, "it is measured"
    times, usual, worst = servable.times.usual, {}, {}
    for batch in sorted({row.batch for row in servable.profile.alone if row.batch <= max(1, servable.together_max)}):
        usual[batch] = max(times.expected_ns(batch, workers, now_ns) / NS_PER_MS, RUN_MS_MIN)
        worst[batch] = usual[batch] * times.spread(batch, workers)
    return Rung(servable, servable.variant.input_px, usual, worst, workers)
