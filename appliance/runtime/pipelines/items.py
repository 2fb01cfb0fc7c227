"""What stages work on: the items of one frame, and what came of each stage about each of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from appliance.domain.pipeline import NoAnswer, Region
from appliance.runtime.pipelines.ports import StageAnswer


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a stage ended about an item."""

    answer: StageAnswer | None = None
    """None of crops and picks, whose answer is the item itself."""
    none: NoAnswer | None = None
    """Why there is no answer; None: there is."""
    is_inherited: bool = False
    """Nothing was tried, because a stage before has no answer."""
    is_outdone: bool = False
    """Its condition held, but others were better."""


@dataclass(slots=True, eq=False)
class Item:
    """The whole input of a frame, or a region of it."""

    level: str
    """The crop that made it; empty: the whole input."""
    parent: "Item | None" = None
    region: Region | None = None
    """In the original picture; None: the whole input."""
    subject: Any = None
    """What networks look at, while somebody has yet to."""
    takers: set[str] = field(default_factory=set)
    """Stages that have yet to look at it."""
    begun: set[str] = field(default_factory=set)
    """Stages that were decided on."""
    since_ns: dict[str, int] = field(default_factory=dict)
    """Stage → when it could begin."""
    ends: dict[str, Outcome] = field(default_factory=dict)
    """Stage → what came of it. Of a crop: under the item that it cut, and that it made."""
    children: dict[str, list["Item"]] = field(default_factory=dict)
    """Level → items that were cut from this one."""

    def above(self, level: str) -> "Item | None":
        """The item of a level that this one was cut from, or itself; None: it was cut from none."""
        item: Item | None = self
        while item is not None and item.level != level:
            item = item.parent
        return item

    def below(self, levels: Sequence[str]) -> Iterator["Item"]:
        """The items of the last of `levels` that were cut from this one, level by level; itself where there are none
        to go."""
        if not levels:
            yield self
            return
        for child in self.children.get(levels[0], ()):
            yield from child.below(levels[1:])

    @property
    def score(self) -> float:
        """How sure the network is that found it."""
        return 1.0 if self.region is None else self.region.score
