"""What pipelines were planned by last, and so which of them are to be planned anew (SC-17). Event-loop thread only."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

from appliance.policies.allocation.base import Placed
from appliance.runtime.pipelines.environment import PlannedPipeline
from appliance.runtime.pipelines.picture import Picture, Seen, has_moved, have_other_weights, load_of
from appliance.runtime.pipelines.problem import Machine

LOAD_CHANGE = 0.1
"""Of a group's workers: single calls that take so much more or less than at the last plans."""


@dataclass(frozen=True, slots=True)
class LastPlan:
    """The last plan of a pipeline with what it was made by."""

    seen: Seen
    placement: tuple[Placed, ...]
    is_short: bool = False
    """It has less than it asked for, and with more workers would have more."""

    @property
    def taken(self) -> float:
        """Workers."""
        return taken_by(self.placement)


class LastPlans:
    """Of all pipelines, with the box that they were made for."""

    def __init__(self, pipelines: Mapping[str, PlannedPipeline]) -> None:
        """`pipelines` by id, kept by the registry."""
        self._pipelines = pipelines
        self._of: dict[str, LastPlan] = {}
        self._machine: Machine | None = None
        self._memory: Mapping[str, int] = {}
        self._weights: Mapping[str, float] = {}
        """Of tenants."""
        self._load: Mapping[str, float] = {}
        """What single calls took when all were planned last, by worker type."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def copied(self) -> "LastPlans":
        """As they are now, whatever is planned after."""
        found = copy(self)
        found._of = dict(self._of)
        return found

    def get(self, id: str) -> LastPlan | None:
        """That of a pipeline; None: it has none."""
        return self._of.get(id)

    def put(self, id: str, plan: LastPlan) -> None:
        """A pipeline was planned."""
        self._of[id] = plan

    def forget(self, id: str) -> None:
        """A pipeline has none any more, if it had one."""
        self._of.pop(id, None)

    def made_for(self, picture: Picture) -> None:
        """The last plans are for the box of this picture."""
        if picture.machine != self._machine or self._has_new_load(picture):  # all were planned
            self._load = load_of(picture.busy)
        self._machine, self._memory, self._weights = picture.machine, picture.memory, picture.weights

    @property
    def taken(self) -> float:
        """Workers, of all."""
        return sum(one.taken for one in self._of.values())

    def short(self, but: Collection[str] = ()) -> set[str]:
        """Pipelines that have less than they asked for, without some."""
        return {id for id, one in self._of.items() if one.is_short and id not in but}

    def placements(self, but: Collection[str] = ()) -> dict[str, tuple[Placed, ...]]:
        """Where pipelines are, without some."""
        return {id: one.placement for id, one in self._of.items() if id not in but}

    # -- what has changed since ----------------------------------------------------------------------------------------

    def changes(self, picture: Picture) -> dict[str, str]:
        """Pipelines that are to be planned, whatever has become of the others, and why, for a person."""
        of_all = self.change_of_all(picture)
        found: dict[str, str] = {}
        for id, seen in picture.seen.items():
            last, live = self._of.get(id), self._pipelines.get(id)
            if last is None or (live is not None and live.plan is None):  # it is not the one that was planned
                found[id] = "it has no plan"
            elif because := of_all or seen.change_since(last.seen):
                found[id] = because
        return found

    def change_of_all(self, picture: Picture) -> str:
        """Why all are to be planned; empty: they are not."""
        if picture.machine != self._machine:
            return "processors have changed"
        if has_moved(picture.memory, self._memory):
            return "the memory has changed"
        if have_other_weights(picture.weights, self._weights):
            return "tenants weigh more or less than before"
        return "single calls take more or less of the processors" if self._has_new_load(picture) else ""

    def _has_new_load(self, picture: Picture) -> bool:
        """Whether single calls take much more or less than all were planned with."""
        now = load_of(picture.busy)
        available = {worker.name: worker.available or 1 for worker in picture.machine.workers}
        return any(
            abs(now.get(name, 0.0) - self._load.get(name, 0.0)) > LOAD_CHANGE * available.get(name, 1)
            for name in {**now, **self._load}
        )


def taken_by(placement: Sequence[Placed]) -> float:
    """Workers."""
    return sum(part.share for place in placement for part in place.parts)
