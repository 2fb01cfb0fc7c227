"""The graph of a pipeline's stages: whether it can be run at all, and in which order.

An *item* is what a stage works on. The root item is the whole input of the frame; a crop makes a new *level*, with an
item for each region that it cuts out. A stage that asks an application annotates the item of its input, so several may
annotate the same one. All stages that a stage waits for lie on one chain of levels: the item of the deepest is its own,
and has one item on each level above. What lies on several chains is put together by a `join`, one level up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from appliance.domain.catalogue import TaskKind
from appliance.domain.errors import BadName, PipelineCycle, StageMismatch, TooManyStages, UnknownStage
from appliance.domain.names import NAME
from appliance.domain.pipeline import ITEMS_MAX, STAGES_MAX, Ask, Crop, Join, Pick, Stage

ROOT = ""
"""The level of the frame's whole input; any other is called as the crop that makes it."""


class Data(StrEnum):
    """What a stage takes, or what its answer is."""

    PICTURE = "picture"
    REGIONS = "regions"
    """A list of boxes or quads in a picture."""
    TEXT = "text"
    SOUND = "sound"
    SPEECH = "speech"
    """When somebody speaks."""
    LABEL = "label"
    VECTOR = "vector"
    TENSOR = "tensor"
    SEVERAL = "several"
    """Answers of different sorts, put together; no application takes it."""
    ANY = "any"
    """Not known: the application has gone."""


TAKES: Mapping[TaskKind, Data] = {
    TaskKind.IMAGE_CLASSIFICATION: Data.PICTURE,
    TaskKind.OBJECT_DETECTION: Data.PICTURE,
    TaskKind.FACE_DETECTION: Data.PICTURE,
    TaskKind.TEXT_DETECTION: Data.PICTURE,
    TaskKind.TEXT_RECOGNITION: Data.PICTURE,
    TaskKind.IMAGE_EMBEDDING: Data.PICTURE,
    TaskKind.TEXT_EMBEDDING: Data.TEXT,
    TaskKind.VOICE_ACTIVITY: Data.SOUND,
    TaskKind.TENSOR: Data.TENSOR,
}
GIVES: Mapping[TaskKind, Data] = {
    TaskKind.IMAGE_CLASSIFICATION: Data.LABEL,
    TaskKind.OBJECT_DETECTION: Data.REGIONS,
    TaskKind.FACE_DETECTION: Data.REGIONS,
    TaskKind.TEXT_DETECTION: Data.REGIONS,
    TaskKind.TEXT_RECOGNITION: Data.TEXT,
    TaskKind.IMAGE_EMBEDDING: Data.VECTOR,
    TaskKind.TEXT_EMBEDDING: Data.VECTOR,
    TaskKind.VOICE_ACTIVITY: Data.SPEECH,
    TaskKind.TENSOR: Data.TENSOR,
}
REGION_LISTS: Mapping[TaskKind, str] = {
    TaskKind.OBJECT_DETECTION: "objects",
    TaskKind.FACE_DETECTION: "objects",
    TaskKind.TEXT_DETECTION: "regions",
}
"""What the list of regions is called in an answer."""
_SCORED = frozenset({Data.LABEL, Data.REGIONS, Data.TEXT, Data.ANY})
"""Answers that have labels or scores, which a condition can be about. The label of a text is the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Stages that can be run, as they hang together. All names are those of stages."""

    stages: tuple[Stage, ...]
    """As they are defined."""
    order: tuple[str, ...]
    """Every stage after all that it waits for; otherwise as they were given."""
    edges: tuple[tuple[str, str], ...]
    """(stage that is waited for, stage that waits), conditions among them."""
    takes: Mapping[str, Data]
    gives: Mapping[str, Data]
    levels: Mapping[str, str]
    """Stage → level of the items that it answers about. Of a crop: the level that it makes."""
    level_parents: Mapping[str, str]
    """Level → the level that its items were cut on; the root has none."""
    parents: Mapping[str, str | None]
    """Stage → the stage under whose nodes its own hang in the answer; None: under the frame."""
    sources: Mapping[str, str]
    """Crop → the stage whose answer has its regions; stage that takes a text → the stage that gives it, where it is not
    the frame's input."""
    root_takes: Data
    """What a frame's input is; ANY: the networks do not say."""

    @classmethod
    def of(cls, stages: Sequence[Stage], kinds: Mapping[str, TaskKind]) -> "Graph":
        """`kinds`: task of each application, by its id; one that is missing fits anywhere.

        Raises: TooManyStages, BadName, UnknownStage, PipelineCycle, StageMismatch; with the `key` that is wrong, as
        `stages[1].after`.
        """
        _check_size(stages)
        positions = _positions(stages)
        _check_names(stages, positions)
        order = _order(stages, positions)
        links = _Links(stages, positions, kinds)
        for name in order:
            links.add(stages[positions[name]])
        return cls(
            stages=tuple(stages),
            order=order,
            edges=tuple((before, stage.name) for stage in stages for before in stage.before),
            takes=links.takes,
            gives=links.gives,
            levels=links.levels,
            level_parents=links.level_parents,
            parents=links.parents,
            sources=links.sources,
            root_takes=links.root_takes(),
        )

    def level_of(self, stage: str) -> str:
        """The level of the items that a stage answers about."""
        return self.levels[stage]

    def behind(self, stage: str) -> tuple[str, ...]:
        """The stages that wait for a stage directly."""
        return tuple(after for before, after in self.edges if before == stage)

    def longest_behind(self, takes_ms: Mapping[str, float]) -> dict[str, float]:
        """Stage → milliseconds of the longest path behind it; what `takes_ms` lacks takes none."""
        longest = dict.fromkeys(self.order, 0.0)
        for stage in reversed(self.order):
            longest[stage] = max((takes_ms.get(one, 0.0) + longest[one] for one in self.behind(stage)), default=0.0)
        return longest

    def critical_path(self, takes_ms: Mapping[str, float]) -> tuple[str, ...]:
        """The stages of the path that takes longest, in their order; of several the one that was given first."""
        longest = self.longest_behind(takes_ms)
        ahead: tuple[str, ...] = tuple(one for one in self.order if all(after != one for _, after in self.edges))
        path: list[str] = []
        while ahead:
            path.append(max(ahead, key=lambda one: takes_ms.get(one, 0.0) + longest[one]))
            ahead = self.behind(path[-1])
        return tuple(path)


class _Links:
    """What is found out stage by stage, in their order."""

    def __init__(self, stages: Sequence[Stage], positions: Mapping[str, int], kinds: Mapping[str, TaskKind]) -> None:
        self._stages, self._positions, self._kinds = stages, positions, kinds
        self.takes: dict[str, Data] = {}
        self.gives: dict[str, Data] = {}
        self.levels: dict[str, str] = {}
        self.level_parents: dict[str, str] = {}
        self.parents: dict[str, str | None] = {}
        self.sources: dict[str, str] = {}
        self._depths: dict[str, int] = {}
        """Stage → how many stages are before it on the longest path."""
        self._roots: dict[Data, str] = {}
        """What the frame's input has to be → the first stage that says so."""

    def add(self, stage: Stage) -> None:
        """One that comes after all that it waits for. Raises: StageMismatch."""
        self._depths[stage.name] = 1 + max((self._depths[one] for one in stage.before), default=-1)
        match stage:
            case Ask():
                self._add_ask(stage)
            case Crop():
                self._add_crop(stage)
            case Pick():
                self._add_pick(stage)
            case Join():
                self._add_join(stage)
            case _:
                raise AssertionError(f"a stage of an unknown sort: {stage}")
        self._check_condition(stage)

    def root_takes(self) -> Data:
        return next(iter(self._roots), Data.ANY)

    # -- by sort of stage ----------------------------------------------------------------------------------------------

    def _add_ask(self, stage: Ask) -> None:
        name, kind = stage.name, self._kinds.get(stage.application_id)
        level = self._chain(stage, stage.before)
        wanted = Data.ANY if kind is None else TAKES[kind]
        self._place(stage, level, self._deepest(stage.after or stage.before))
        self.takes[name] = wanted
        self.gives[name] = Data.ANY if kind is None else GIVES[kind]
        if wanted is Data.TEXT:
            texts = [one for one in stage.after if self.gives[one] is Data.TEXT]
            if texts:
                self.sources[name] = self._chosen_by(self._deepest(texts) or texts[0])
                return
        if level == ROOT:
            self._check_root(stage, wanted)
        elif wanted not in (Data.PICTURE, Data.ANY):
            raise self._mismatch(stage, "after", f"it takes {wanted}, and {level!r} cuts pictures")

    def _add_crop(self, stage: Crop) -> None:
        level = self._chain(stage, stage.before)
        lists = {one: self._list_of(one) for one in stage.after}
        fitting = [one for one, found in lists.items() if found in (stage.of, "any")]
        if not fitting:
            if not stage.after:
                raise self._mismatch(stage, "after", "a crop comes after the application that finds its regions")
            known = [f"{one!r} answers with {found!r}" for one, found in lists.items() if found]
            wrong = "; ".join(known) or f"{stage.after[0]!r} finds no regions"
            raise self._mismatch(stage, "of" if known else "after", f"there is no list {stage.of!r}: {wrong}")
        source = self._deepest(fitting) or fitting[0]
        if self.levels[source] != level:
            raise self._mismatch(stage, "after", f"the regions of {source!r} are cut where it looks, not on {level!r}")
        self.sources[stage.name] = source
        self.level_parents[stage.name] = level
        self._place(stage, stage.name, source)
        self.takes[stage.name], self.gives[stage.name] = Data.REGIONS, Data.PICTURE

    def _add_pick(self, stage: Pick) -> None:
        if len(stage.after) != 1:
            raise self._mismatch(
                stage, "after", "a pick needs one stage before it, and chooses among the items of that stage"
            )
        level = self._chain(stage, stage.before)
        (before,) = stage.after
        if self.levels[before] == ROOT:
            raise self._mismatch(stage, "after", "a pick comes after a crop: before, there is one item only")
        if self.levels[before] != level:
            raise self._mismatch(stage, "when", f"{level!r} has items of its own below those of {before!r}")
        self._place(stage, level, before)
        self.takes[stage.name] = self.gives[stage.name] = self.gives[before]

    def _add_join(self, stage: Join) -> None:
        if not stage.after:
            raise self._mismatch(
                stage,
                "after",
                "a join needs at least one stage before it, and puts the answers of these stages together",
            )
        for one in stage.after:
            if isinstance(self._stages[self._positions[self._chosen_by(one)]], Crop):
                raise self._mismatch(stage, "after", f"{one!r} cuts pictures and answers nothing: nothing to join")
        levels = {self.levels[one]: one for one in stage.after}
        if ROOT in levels:
            raise self._mismatch(stage, "after", f"{levels[ROOT]!r} answers about the whole frame: nothing to join")
        uppers = {self.level_parents[level] for level in levels}
        if len(uppers) > 1:
            names = " and ".join(repr(one) for one in levels.values())
            raise self._mismatch(stage, "after", f"the items of {names} have no parent in common: join them one by one")
        (upper,) = uppers
        if stage.when is not None and self._chain(stage, (stage.when.stage,)) not in self._above(upper):
            raise self._mismatch(stage, "when", f"{stage.when.stage!r} has several items for each that is joined to")
        first = self.levels[stage.after[0]]
        self._place(stage, upper, self.parents[first])
        given = {self.gives[one] for one in stage.after}
        self.takes[stage.name] = self.gives[stage.name] = given.pop() if len(given) == 1 else Data.SEVERAL

    # -- inside --------------------------------------------------------------------------------------------------------

    def _place(self, stage: Stage, level: str, parent: str | None) -> None:
        self.levels[stage.name], self.parents[stage.name] = level, parent

    def _above(self, level: str) -> list[str]:
        """A level and all above it, the root last."""
        chain = [level]
        while chain[-1] != ROOT:
            chain.append(self.level_parents[chain[-1]])
        return chain

    def _chain(self, stage: Stage, before: Sequence[str]) -> str:
        """The deepest level of those that a stage waits for. Raises: StageMismatch where they are on no one chain."""
        levels = {self.levels[one]: one for one in before}
        deepest = max(levels, key=lambda level: len(self._above(level)), default=ROOT)
        chain = self._above(deepest)
        for level, one in levels.items():
            if level not in chain:
                key = "when" if one not in stage.after else "after"
                other = levels[deepest]
                raise self._mismatch(stage, key, f"{one!r} and {other!r} have different items; put a join between them")
        return deepest

    def _deepest(self, before: Sequence[str]) -> str | None:
        """Of several on one chain the one that was asked last about the deepest item."""
        return max(before, key=lambda one: (len(self._above(self.levels[one])), self._depths[one]), default=None)

    def _chosen_by(self, stage: str) -> str:
        """The stage whose answers picks choose by: itself, where it is no pick."""
        while isinstance(found := self._stages[self._positions[stage]], Pick):
            (stage,) = found.after
        return stage

    def _list_of(self, stage: str) -> str:
        """What the list of regions in a stage's answer is called; empty: it has none."""
        found = self._stages[self._positions[stage]]
        if not isinstance(found, Ask):
            return ""
        kind = self._kinds.get(found.application_id)
        return "any" if kind is None else REGION_LISTS.get(kind, "")

    def _check_root(self, stage: Stage, wanted: Data) -> None:
        """All that look at the frame itself take the same. Raises: StageMismatch."""
        if wanted is Data.ANY:
            return
        self._roots.setdefault(wanted, stage.name)
        if len(self._roots) > 1:
            first, other = next(iter(self._roots.items()))
            key = "after" if stage.after else "application"
            raise self._mismatch(stage, key, f"it takes {wanted}, and {other!r} has the same input and takes {first}")

    def _check_condition(self, stage: Stage) -> None:
        """Raises: StageMismatch."""
        if stage.when is None:
            return
        about = self._stages[self._positions[stage.when.stage]]
        if isinstance(about, Ask) and self.gives[about.name] not in _SCORED:
            raise self._mismatch(stage, "when", f"the answer of {about.name!r} has neither labels nor scores")
        if isinstance(about, Join):
            raise self._mismatch(stage, "when", f"{about.name!r} puts answers together and has no label of its own")

    def _mismatch(self, stage: Stage, key: str, reason: str) -> StageMismatch:
        position = self._positions[stage.name]
        return StageMismatch(key=f"stages[{position}].{key}", stage=stage.name, reason=reason)


def _check_size(stages: Sequence[Stage]) -> None:
    """Raises: TooManyStages; StageMismatch where no network is asked."""
    if len(stages) > STAGES_MAX:
        raise TooManyStages(key="stages", count=len(stages), most=STAGES_MAX, what="stages")
    for position, stage in enumerate(stages):
        if stage.at_most > ITEMS_MAX:
            raise TooManyStages(key=f"stages[{position}].at_most", count=stage.at_most, most=ITEMS_MAX, what="items")
        if isinstance(stage, Pick) and stage.best > ITEMS_MAX:
            raise TooManyStages(key=f"stages[{position}].best", count=stage.best, most=ITEMS_MAX, what="items")
    if not any(isinstance(stage, Ask) for stage in stages):
        raise StageMismatch(key="stages", stage="", reason="a pipeline asks one application at least")


def _positions(stages: Sequence[Stage]) -> dict[str, int]:
    """Name → position. Raises: BadName where one is illegal or there twice."""
    positions: dict[str, int] = {}
    for position, stage in enumerate(stages):
        if not NAME.fullmatch(stage.name):
            raise BadName(what="stage", name=stage.name[:80], key=f"stages[{position}].name")
        first = positions.setdefault(stage.name, position)
        if first != position:
            rule = f"stages[{first}] has it already; give each stage a name of its own, which `after` and `when` go by"
            raise BadName(what="stage", name=stage.name, rule=rule, key=f"stages[{position}].name")
    return positions


def _check_names(stages: Sequence[Stage], positions: Mapping[str, int]) -> None:
    """Raises: UnknownStage; StageMismatch where a stage waits for another twice."""
    for position, stage in enumerate(stages):
        key = f"stages[{position}].after"
        for one in stage.after:
            if one not in positions:
                raise UnknownStage(key=key, stage=one[:80])
        if len(set(stage.after)) < len(stage.after):
            raise StageMismatch(key=key, stage=stage.name, reason="it names a stage twice")
        if stage.when is not None and stage.when.stage not in positions:
            raise UnknownStage(key=f"stages[{position}].when", stage=stage.when.stage[:80])


def _order(stages: Sequence[Stage], positions: Mapping[str, int]) -> tuple[str, ...]:
    """Raises: PipelineCycle."""
    order: list[str] = []
    left = list(stages)
    while left:
        ready = next((stage for stage in left if all(one in order for one in stage.before)), None)
        if ready is None:
            circle = _circle({stage.name: stage.before for stage in left})
            first = min(range(len(circle)), key=lambda at: positions[circle[at]])
            circle = (*circle[first:], *circle[:first])
            raise PipelineCycle(key=f"stages[{positions[circle[0]]}].after", stages=circle)
        order.append(ready.name)
        left.remove(ready)
    return tuple(order)


def _circle(waits: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Stages that wait for one another, each for the one before; all of `waits` wait for one of it at least."""
    walk = [next(iter(waits))]
    while (before := next(one for one in waits[walk[-1]] if one in waits)) not in walk:
        walk.append(before)
    return tuple(reversed(walk[walk.index(before) :]))
