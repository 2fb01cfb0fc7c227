"""Pipelines that Hypothesis draws, what their networks say, and what must come of a frame, worked out one stage after
the other without any of what runs them.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from appliance.domain.catalogue import TaskKind
from appliance.domain.errors import BadInput, BadName
from appliance.domain.pipeline import (
    Ask,
    Crop,
    Join,
    NoAnswer,
    OnError,
    Pick,
    PickBy,
    Pipeline,
    Region,
    Stage,
    When,
    Where,
)
from appliance.domain.pipeline_graph import ROOT, Graph
from appliance.tasks.answers import holds, joined, judgements, picked
from appliance.tasks.regions import placed, regions_in, wanted
from tests.fakes.stages import Path

KINDS = {
    "t/find": TaskKind.OBJECT_DETECTION,
    "t/what": TaskKind.IMAGE_CLASSIFICATION,
    "t/read": TaskKind.TEXT_RECOGNITION,
    "t/mean": TaskKind.TEXT_EMBEDDING,
}
LABELS = ("a", "b", "c")


def ask(name: str, application: str, *after: str, **facts: Any) -> Ask:
    return Ask(name=name, application_id=f"t/{application}", after=after, **facts)


FIND, CROP = ask("find", "find"), Crop(name="crop", after=("find",), of="objects")
READ, ALL = ask("read", "read", "crop"), Join(name="all", after=("read",))


@st.composite
def pipelines(draw: st.DrawFn, *, on_error: bool = False, stateful: bool = False) -> Pipeline:
    """Whatever fits together of up to nine stages, in some order; it begins with what finds regions."""
    stages: list[Stage] = [Ask(name="s0", application_id="t/find")]
    for at in range(1, draw(st.integers(2, 9))):
        stage = draw(_stages(f"s{at}", [one.name for one in stages], on_error, stateful))
        try:
            Graph.of([*stages, stage], KINDS)
        except (BadInput, BadName):
            continue
        stages.append(stage)
    return Pipeline("t/p", "t", "p", 10_000.0, tuple(draw(st.permutations(stages))))


@st.composite
def _stages(draw: st.DrawFn, name: str, before: list[str], on_error: bool, stateful: bool) -> Stage:
    after = tuple(draw(st.lists(st.sampled_from(before), min_size=1, max_size=2, unique=True)))
    when = draw(
        st.none()
        | st.builds(
            When,
            st.sampled_from(before),
            st.sampled_from([(), ("a",), ("a", "b")]),
            st.sampled_from([(), ("c",)]),
            st.sampled_from([0.0, 0.5]),
        )
    )
    facts: dict[str, Any] = {"name": name, "after": after, "when": when}
    if on_error:
        facts["on_error"] = draw(st.sampled_from(OnError))
    match draw(st.sampled_from(["ask", "ask", "ask", "crop", "crop", "pick", "join"])):
        case "crop":
            where = Where(score_min=draw(st.sampled_from([0.0, 0.3])))
            return Crop(**facts, of="objects", where=where, at_most=draw(st.sampled_from([2, 64])))
        case "pick":
            by = draw(st.sampled_from(PickBy))
            return Pick(**{**facts, "after": after[:1]}, best=draw(st.integers(1, 2)), by=by)
        case "join":
            return Join(**facts)
    application = draw(st.sampled_from(sorted(KINDS)))
    facts["is_stateful"] = stateful and draw(st.booleans())
    return Ask(**facts, application_id=application, at_most=draw(st.sampled_from([1, 2, 64, 64])))


class World:
    """What networks say; always the same of the same, by a seed."""

    def __init__(self, pipeline: Pipeline, seed: int) -> None:
        self._kinds = {one.name: KINDS[one.application_id] for one in pipeline.stages if isinstance(one, Ask)}
        self._seed = seed

    def says(self, stage: str, about: Path | str) -> Mapping[str, Any]:
        drawn = random.Random(f"{self._seed} {stage} {about}")
        score = drawn.choice([0.2, 0.4, 0.6, 0.8])
        match self._kinds[stage]:
            case TaskKind.OBJECT_DETECTION:
                return {"objects": [_object(drawn) for _ in range(drawn.choice([0, 1, 2, 3]))], "width": 9, "height": 9}
            case TaskKind.IMAGE_CLASSIFICATION:
                return {"labels": [{"label": drawn.choice(LABELS), "index": 0, "score": score}]}
            case TaskKind.TEXT_RECOGNITION:
                return {"text": drawn.choice(LABELS), "score": score}
        return {"embedding": [score]}


def _object(drawn: random.Random) -> dict[str, Any]:
    left, top = drawn.randrange(5), drawn.randrange(5)
    box = [float(left), float(top), float(left + drawn.randint(1, 4)), float(top + drawn.randint(1, 4))]
    return {"label": drawn.choice(LABELS), "score": drawn.choice([0.2, 0.4, 0.6, 0.8]), "box": box}


@dataclass(eq=False)
class Thing:
    """An item, as it must come about. `path` tells it from all others."""

    level: str
    path: tuple[int, ...] = ()
    labels: Path = ()
    parent: "Thing | None" = None
    region: Region | None = None
    ends: dict[str, Any] = field(default_factory=dict)
    """Stage → its answer, or why there is none."""

    def above(self, level: str) -> "Thing":
        thing = self
        while thing.level != level:
            assert thing.parent is not None
            thing = thing.parent
        return thing


class Expected:
    """Of one frame, to which nothing is too late."""

    def __init__(self, pipeline: Pipeline, world: World, errors: Mapping[tuple[str, Path | str], NoAnswer]) -> None:
        self._stages = {one.name: one for one in pipeline.stages}
        self.graph = Graph.of(pipeline.stages, KINDS)
        self._world = world
        self._errors = errors
        self.things = [Thing(ROOT)]
        for name in self.graph.order:
            self._go_through(self._stages[name])

    def _go_through(self, stage: Stage) -> None:
        level = self.graph.levels[stage.name]
        if isinstance(stage, Join):
            for thing in self._at(level):
                thing.ends[stage.name] = self._joined(stage, thing)
            return
        level = self.graph.level_parents[stage.name] if isinstance(stage, Crop) else level
        things = self._at(level)
        reasons = {id(thing): self._why_not(stage, thing) for thing in things}
        able = [thing for thing in things if reasons[id(thing)] is None]
        if isinstance(stage, Pick):
            self._pick(stage, able, reasons)
        elif isinstance(stage, Ask) and len(things) > stage.at_most:
            for thing in sorted(able, key=lambda one: -one.region.score if one.region else 0.0)[stage.at_most :]:
                reasons[id(thing)] = NoAnswer.CONDITION
        for thing in things:
            reason = reasons[id(thing)]
            if reason is None and isinstance(stage, Ask):
                reason = self._ask(stage, thing)
            elif reason is None and isinstance(stage, Crop):
                reason = self._crop(stage, thing)
            thing.ends[stage.name] = reason

    def _at(self, level: str) -> list[Thing]:
        return [thing for thing in self.things if thing.level == level]

    def _end(self, name: str, thing: Thing) -> Any:
        return thing.above(self.graph.levels[name]).ends[name]

    def _why_not(self, stage: Stage, thing: Thing) -> NoAnswer | None:
        for name in stage.after:
            if isinstance(end := self._end(name, thing), NoAnswer):
                return end
        return self._why_not_when(stage, thing)

    def _why_not_when(self, stage: Stage, thing: Thing) -> NoAnswer | None:
        if stage.when is None:
            return None
        if isinstance(end := self._end(stage.when.stage, thing), NoAnswer):
            return end
        return None if holds(stage.when, self._judged(stage.when.stage, thing) or []) else NoAnswer.CONDITION

    def _judged(self, name: str, thing: Thing) -> Any:
        about = thing.above(self.graph.levels[name])
        stage = self._stages[name]
        if isinstance(stage, Pick):
            return self._judged(stage.after[0], thing)
        if isinstance(stage, Crop):
            assert about.region is not None
            return [(about.region.label, about.region.score)]
        return judgements(about.ends[name])

    def _pick(self, stage: Pick, able: list[Thing], reasons: dict[int, Any]) -> None:
        for parent in {id(thing.parent): thing.parent for thing in able}.values():
            group = [thing for thing in able if thing.parent is parent]
            given = [(thing.region or Region((), True), self._judged(stage.after[0], thing)) for thing in group]
            best = picked(stage, given)
            for at, thing in enumerate(group):
                if at not in best:
                    reasons[id(thing)] = NoAnswer.CONDITION

    def _ask(self, stage: Ask, thing: Thing) -> Any:
        source = self.graph.sources.get(stage.name)
        about = thing.labels if source is None else self._end(source, thing)["text"]
        return self._errors.get((stage.name, about)) or self._world.says(stage.name, about)

    def _crop(self, stage: Crop, thing: Thing) -> Any:
        body = self._end(self.graph.sources[stage.name], thing)
        regions = wanted(regions_in(body, stage.of), stage.where, (9, 9), stage.at_most)
        if regions and (stage.name, thing.labels) in self._errors:  # where there is nothing to cut nothing fails
            return self._errors[stage.name, thing.labels]
        for at, one in enumerate(regions):
            path, labels = (*thing.path, at), (*thing.labels, one.label)
            made = Thing(stage.name, path, labels, thing, placed(one, thing.region))
            made.ends[stage.name] = None
            self.things.append(made)
        return None

    def _chosen_by(self, name: str) -> str:
        """The first stage before that is no pick."""
        stage = self._stages[name]
        return self._chosen_by(stage.after[0]) if isinstance(stage, Pick) else name

    def _joined(self, stage: Join, thing: Thing) -> Any:
        bodies = []
        for name in stage.after:
            level = self.graph.levels[name]
            if isinstance(cut := thing.ends[level], NoAnswer):
                return cut
            for child in self._at(level):
                if child.parent is thing and not isinstance(child.ends[name], NoAnswer):
                    said = child.ends[self._chosen_by(name)]
                    bodies += [said] if isinstance(said, Mapping) else []
        return self._why_not_when(stage, thing) or joined(bodies)
