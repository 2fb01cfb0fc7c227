"""What is known of a frame: its items by level, and how stages ended about them. Nothing is decided here."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from appliance.domain.pipeline import NoAnswer, Pick, Stage
from appliance.domain.pipeline_graph import ROOT
from appliance.runtime.pipelines.items import Item, Outcome
from appliance.runtime.pipelines.live import LivePipeline
from appliance.runtime.pipelines.ports import StageAnswer
from appliance.tasks.answers import Judgement, holds, judgements


class Outcomes:
    """Of one frame."""

    def __init__(self, live: LivePipeline, root: Item) -> None:
        self._live = live
        self._items: dict[str, list[Item]] = {ROOT: [root]}
        """By level."""

    def items(self, level: str) -> Sequence[Item]:
        """Those of a level that are there, in the order in which they were cut."""
        return self._items.get(level, ())

    def all(self) -> list[Item]:
        """Of every level."""
        return [item for items in self._items.values() for item in items]

    def add(self, level: str, items: Iterable[Item]) -> None:
        """They were cut."""
        self._items.setdefault(level, []).extend(items)

    def is_known(self, stage: Stage, item: Item) -> bool:
        """Whether all that a stage waits for has ended about an item."""
        return all(self.outcome(name, item) is not None for name in stage.before)

    def outcome(self, name: str, item: Item) -> Outcome | None:
        """How a stage ended about an item, or about what that was cut from; None: it has not."""
        about = item.above(self._live.graph.levels[name])
        return None if about is None else about.ends.get(name)

    def answer(self, name: str, item: Item) -> StageAnswer | None:
        """What a stage that has ended said of one of its items; a pick says of those that it chose what it chose by."""
        while (found := item.ends[name]).none is None and isinstance(stage := self._live.stages[name], Pick):
            (name,) = stage.after
        return found.answer

    def why_not(self, stage: Stage, item: Item) -> Outcome | None:
        """Why a stage does not ask about an item of which all is known; None: it does."""
        for name in stage.after:
            before = self.outcome(name, item)
            if before is not None and before.none is not None:
                return Outcome(none=before.none, is_inherited=True)
        return self.why_not_when(stage, item)

    def why_not_when(self, stage: Stage, item: Item) -> Outcome | None:
        if stage.when is None:
            return None
        before = self.outcome(stage.when.stage, item)
        assert before is not None, "it is known"
        if before.none is not None:
            return Outcome(none=before.none, is_inherited=True)
        is_so = holds(stage.when, self.judgements(stage.when.stage, item) or ())
        return None if is_so else Outcome(none=NoAnswer.CONDITION)

    def judgements(self, name: str, item: Item) -> Sequence[Judgement] | None:
        """What a stage said of an item in labels and scores; None of a crop or pick behind one, which say nothing."""
        about = item.above(self._live.graph.levels[name])
        assert about is not None, "it is on the chain"
        while isinstance(stage := self._live.stages[name], Pick):
            (name,) = stage.after
        answer = about.ends[name].answer
        if answer is not None:
            return judgements(answer.body)
        region = about.region
        return None if region is None else [(region.label, region.score)]

    def is_complete(self, level: str) -> bool:
        """Whether all items of a level are there."""
        path = self._live.paths[level]
        return all(down in item.ends for up, down in pairwise(path) for item in self.items(up))

    def related(self, item: Item, level: str) -> list[Item]:
        """The item of a level that an item was cut from, or those that were cut from it."""
        path = self._live.paths[level]
        if item.level in path:
            return list(item.below(path[path.index(item.level) + 1 :]))
        found = item.above(level)
        return [] if found is None else [found]
