"""Which stage of a frame begins with which items, and with which it never will: asked whenever something has ended.

A network or a crop begins with each item for itself; a network that takes the best of a frame, a pick and a join begin
when all items that they choose among, or put together, are there and known. Nothing runs here, and nothing waits.
"""

from collections.abc import Callable

from appliance.domain.pipeline import Join, NoAnswer, Pick, Stage
from appliance.runtime.pipelines.items import Item, Outcome
from appliance.runtime.pipelines.live import LivePipeline
from appliance.runtime.pipelines.outcomes import Outcomes


class Beginnings:
    """Of one frame."""

    def __init__(
        self,
        live: LivePipeline,
        outcomes: Outcomes,
        begin: Callable[[Stage, list[Item]], None],
        settle: Callable[[Stage, Item, Outcome], None],
    ) -> None:
        """`begin`: a stage with items, a pick with all of one parent at once. `settle`: it ended without beginning."""
        self._live = live
        self._outcomes = outcomes
        self._begin = begin
        self._settle = settle

    def look(self, name: str, item: Item) -> None:
        """Something has ended about an item: a stage may begin with it, with what was cut from it, or above."""
        stage = self._live.stages[name]
        level = self._live.level_of(name)
        if self._live.gathers(name):
            self._look_at_all(stage, level)
            return
        if isinstance(stage, Pick):
            path = self._live.paths[level]
            for parent in self._outcomes.related(item, path[-2]):
                self._look_at_group(stage, parent)
            return
        for one in self._outcomes.related(item, level):
            if name in one.begun:
                continue
            if isinstance(stage, Join):
                self._look_at_parent(stage, one)
            elif self._outcomes.is_known(stage, one):
                self._decide(stage, one)

    def _look_at_all(self, stage: Stage, level: str) -> None:
        """A stage that takes the best of all items of the frame."""
        if not self._outcomes.is_complete(level):
            return
        items = [item for item in self._outcomes.items(level) if stage.name not in item.begun]
        if len(self._outcomes.items(level)) <= stage.at_most:
            for item in items:
                if self._outcomes.is_known(stage, item):
                    self._decide(stage, item)
            return
        if not items or not all(self._outcomes.is_known(stage, item) for item in items):
            return
        able = [item for item in items if self._outcomes.why_not(stage, item) is None]
        best = {id(item) for item in sorted(able, key=lambda item: -item.score)[: stage.at_most]}
        for item in items:
            self._decide(stage, item, is_taken=id(item) in best)

    def _look_at_group(self, stage: Pick, parent: Item) -> None:
        """A pick among the items of one parent."""
        level = self._live.level_of(stage.name)
        group = parent.children.get(level, [])
        if level not in parent.ends or not all(self._outcomes.is_known(stage, item) for item in group):
            return
        able = []
        for item in [item for item in group if stage.name not in item.begun]:
            item.begun.add(stage.name)
            none = self._outcomes.why_not(stage, item)
            if none is None:
                able.append(item)
            else:
                self._settle(stage, item, none)
        if able:
            self._begin(stage, able)

    def _look_at_parent(self, stage: Join, item: Item) -> None:
        """A join of all items that were cut from one."""
        levels = [self._live.graph.levels[name] for name in stage.after]
        for name, level in zip(stage.after, levels, strict=True):
            if level not in item.ends or any(name not in child.ends for child in item.children.get(level, ())):
                return
        if stage.when is not None and self._outcomes.outcome(stage.when.stage, item) is None:
            return
        item.begun.add(stage.name)
        cuts = [item.ends[level].none for level in levels]
        none = next((Outcome(none=one, is_inherited=True) for one in cuts if one is not None), None)
        none = none or self._outcomes.why_not_when(stage, item)
        if none is None:
            self._begin(stage, [item])
        else:
            self._settle(stage, item, none)

    def _decide(self, stage: Stage, item: Item, *, is_taken: bool = True) -> None:
        """All that it waits for is known: it begins, or never will."""
        item.begun.add(stage.name)
        none = self._outcomes.why_not(stage, item)
        if none is None and not is_taken:
            none = Outcome(none=NoAnswer.CONDITION, is_outdone=True)
        if none is None:
            self._begin(stage, [item])
        else:
            self._settle(stage, item, none)
