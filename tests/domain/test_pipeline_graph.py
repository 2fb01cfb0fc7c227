"""The graph of a pipeline's stages: what is refused and with which key, and what hangs under what."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.domain.catalogue import TaskKind
from appliance.domain.errors import (
    BadInput,
    BadName,
    BadPipeline,
    PipelineCycle,
    StageMismatch,
    TooManyStages,
    UnknownStage,
)
from appliance.domain.pipeline import Ask, Crop, Join, Pick, Stage, When
from appliance.domain.pipeline_graph import ROOT, Data, Graph

KINDS = {
    "t/find-text": TaskKind.TEXT_DETECTION,
    "t/read-text": TaskKind.TEXT_RECOGNITION,
    "t/page-side": TaskKind.IMAGE_CLASSIFICATION,
    "t/objects": TaskKind.OBJECT_DETECTION,
    "t/who": TaskKind.IMAGE_EMBEDDING,
    "t/meaning": TaskKind.TEXT_EMBEDDING,
    "t/speech": TaskKind.VOICE_ACTIVITY,
    "t/depth": TaskKind.TENSOR,
}


def ask(name: str, application: str, *after: str, **more: Any) -> Ask:
    return Ask(name=name, application_id=f"t/{application}", after=after, **more)


FIND = ask("find", "find-text")
LINES = Crop(name="lines", after=("find",), of="regions", at_most=16)
SIDE = ask("side", "page-side", "lines")
READ = ask("read", "read-text", "lines", when=When("side", labels_not=("180",)))
SIGNS = (FIND, LINES, SIDE, READ)


def graph_of(*stages: Stage) -> Graph:
    return Graph.of(stages, KINDS)


def refusal(*stages: Stage) -> BadPipeline:
    with pytest.raises(BadPipeline) as refused:
        graph_of(*stages)
    return refused.value


def test_pipeline_graph_has_levels_parents_and_topological_order() -> None:
    """One item per line, both networks about the same item, in an order that fits."""
    graph = graph_of(*SIGNS)
    assert graph.order == ("find", "lines", "side", "read")
    assert graph.edges == (("find", "lines"), ("lines", "side"), ("lines", "read"), ("side", "read"))
    assert graph.levels == {"find": ROOT, "lines": "lines", "side": "lines", "read": "lines"}
    assert graph.level_parents == {"lines": ROOT}
    assert graph.parents == {"find": None, "lines": "find", "side": "lines", "read": "lines"}
    assert graph.sources == {"lines": "find"}
    assert (graph.takes["read"], graph.gives["read"], graph.gives["lines"]) == (Data.PICTURE, Data.TEXT, Data.PICTURE)
    assert graph.root_takes is Data.PICTURE


def test_pipeline_stages_given_in_any_order_are_sorted() -> None:
    """Of the stages that are ready the first one given goes first."""
    assert graph_of(READ, SIDE, LINES, FIND).order == ("find", "lines", "side", "read")


def test_join_stage_lies_one_level_above_the_joined_items() -> None:
    """The join's node hangs beside those of the joined items, and its text can be looked at as a whole."""
    joined = Join(name="text", after=("read",))
    graph = graph_of(*SIGNS, joined, ask("mean", "meaning", "text"))
    assert (graph.level_of("text"), graph.parents["text"], graph.gives["text"]) == (ROOT, "find", Data.TEXT)
    assert (graph.level_of("mean"), graph.parents["mean"], graph.sources["mean"]) == (ROOT, "text", "text")
    assert graph_of(*SIGNS, Join(name="all", after=("read", "side"))).gives["all"] is Data.SEVERAL


def test_nested_crop_stages_make_nested_levels() -> None:
    """A detector that looks at crops makes a level below theirs, and a join leads up one of them."""
    stages = (
        ask("people", "objects"),
        Crop(name="persons", after=("people",), of="objects"),
        ask("badges", "find-text", "persons"),
        Crop(name="badge", after=("badges",), of="regions"),
        ask("read", "read-text", "badge"),
        Join(name="names", after=("read",)),
        ask("who", "who", "persons", "names"),
    )
    graph = graph_of(*stages)
    assert graph.level_parents == {"persons": ROOT, "badge": "persons"}
    assert (graph.level_of("names"), graph.parents["names"]) == ("persons", "badges")
    assert (graph.level_of("who"), graph.parents["who"]) == ("persons", "names")


def test_forked_crops_of_a_pipeline_meet_only_in_a_join() -> None:
    """The best of the items go on behind a pick."""
    best = Pick(name="best", best=3, after=("lines",))
    objects = (ask("things", "objects"), Crop(name="thing", after=("things",), of="objects"))
    graph = graph_of(FIND, LINES, best, ask("read", "read-text", "best"), *objects, ask("what", "page-side", "thing"))
    assert (graph.level_of("best"), graph.gives["best"]) == ("lines", Data.PICTURE)
    both = Join(name="both", after=("read", "what"))
    forked = (FIND, LINES, best, ask("read", "read-text", "best"), *objects, ask("what", "page-side", "thing"), both)
    assert graph_of(*forked).level_of("both") == ROOT
    refused = refusal(*forked[:-1], ask("odd", "page-side", "read", "what"))
    assert isinstance(refused, StageMismatch)
    assert refused.key == "stages[7].after"
    assert "join" in refused.reason


def test_pipeline_critical_path_is_the_longest_by_duration() -> None:
    graph = graph_of(*SIGNS)
    takes_ms = {"find": 24.0, "lines": 1.0, "side": 3.0, "read": 10.0}
    assert graph.longest_behind(takes_ms) == {"find": 14.0, "lines": 13.0, "side": 10.0, "read": 0.0}
    assert graph.critical_path(takes_ms) == ("find", "lines", "side", "read")


@pytest.mark.parametrize(
    ("stages", "kind", "key"),
    [
        ((replace(FIND, after=("read",)), LINES, SIDE, READ), PipelineCycle, "stages[0].after"),
        ((FIND, replace(LINES, after=("fnid",))), UnknownStage, "stages[1].after"),
        ((FIND, LINES, replace(READ, when=When("sdie"))), UnknownStage, "stages[2].when"),
        ((FIND, replace(LINES, after=("find", "find"))), StageMismatch, "stages[1].after"),
        ((FIND, replace(LINES, of="objects")), StageMismatch, "stages[1].of"),
        ((ask("what", "page-side"), replace(LINES, after=("what",))), StageMismatch, "stages[1].after"),
        ((FIND, replace(LINES, after=())), StageMismatch, "stages[1].after"),
        ((FIND, LINES, ask("mean", "meaning", "lines")), StageMismatch, "stages[2].after"),
        ((FIND, LINES, ask("loud", "speech", "lines")), StageMismatch, "stages[2].after"),
        ((FIND, LINES, ask("depth", "depth", "lines")), StageMismatch, "stages[2].after"),
        ((FIND, ask("loud", "speech")), StageMismatch, "stages[1].application"),
        ((FIND, ask("mean", "meaning", "find")), StageMismatch, "stages[1].after"),
        ((FIND, Pick(name="best", best=1, after=("find",))), StageMismatch, "stages[1].after"),
        ((FIND, LINES, Pick(name="best", best=1)), StageMismatch, "stages[2].after"),
        ((FIND, Join(name="all", after=("find",))), StageMismatch, "stages[1].after"),
        ((FIND, Join(name="all")), StageMismatch, "stages[1].after"),
        ((FIND, LINES, Join(name="all", after=("lines",))), StageMismatch, "stages[2].after"),
        ((FIND, LINES, Pick(name="best", best=1, after=("lines",)), Join(name="all", after=("best",))), StageMismatch,
         "stages[3].after"),
        ((FIND, LINES, ask("who", "who", "lines"), ask("x", "page-side", "lines", when=When("who"))), StageMismatch,
         "stages[3].when"),
        ((FIND, LINES, replace(FIND, name="again", when=When("lines"))), None, ""),
        ((FIND, replace(LINES, at_most=65)), TooManyStages, "stages[1].at_most"),
        ((FIND, LINES, Pick(name="best", best=65, after=("lines",))), TooManyStages, "stages[2].best"),
        (tuple(ask(f"s{at}", "find-text") for at in range(17)), TooManyStages, "stages"),
        ((), StageMismatch, "stages"),
    ],
)  # fmt: skip
def test_invalid_pipeline_is_refused_with_the_key_at_fault(
    stages: Sequence[Stage], kind: type[BadPipeline] | None, key: str
) -> None:
    """The message begins with the key."""
    if kind is None:
        graph_of(*stages)
        return
    refused = refusal(*stages)
    assert type(refused) is kind
    assert refused.key == key
    assert str(refused).startswith(key)


PERSONS = (ask("people", "objects"), Crop(name="persons", after=("people",), of="objects"))
BADGES = (
    *PERSONS,
    ask("badges", "find-text", "persons"),
    Crop(name="badge", after=("badges",), of="regions"),
    ask("read", "read-text", "badge"),
)
"""Crops in crops: a level of persons, and one of the badges of each."""


@pytest.mark.parametrize(
    ("stages", "key", "reason"),
    [
        ((*SIGNS[:2], Crop(name="parts", after=("lines",), of="regions")), "stages[2].after",
         "there is no list 'regions': 'lines' finds no regions"),
        ((*BADGES, Crop(name="again", after=("people",), of="objects", when=When("read"))), "stages[5].after",
         "the regions of 'people' are cut where it looks, not on 'badge'"),
        ((*BADGES, Pick(name="best", best=1, after=("persons",), when=When("read"))), "stages[5].when",
         "'badge' has items of its own below those of 'persons'"),
        ((*BADGES, ask("who", "who", "persons"), Join(name="all", after=("who", "read"))), "stages[6].after",
         "the items of 'who' and 'read' have no parent in common: join them one by one"),
        ((*BADGES, Join(name="names", after=("read",), when=When("read"))), "stages[5].when",
         "'read' has several items for each that is joined to"),
        ((*SIGNS, Join(name="text", after=("read",)), ask("mean", "meaning", "text", when=When("text"))),
         "stages[5].when", "'text' puts answers together and has no label of its own"),
    ],
)  # fmt: skip
def test_pipeline_of_stages_on_wrong_levels_is_refused_with_reason(
    stages: Sequence[Stage], key: str, reason: str
) -> None:
    """No regions, no single item for each of another level, no common parent, or no label."""
    refused = refusal(*stages)
    assert isinstance(refused, StageMismatch)
    assert (refused.key, refused.reason) == (key, reason)


def test_join_conditioned_on_a_stage_above_is_accepted() -> None:
    """The names on a person's badges are put together where the person was recognised: one item for each of both."""
    names = Join(name="names", after=("read",), when=When("look"))
    graph = graph_of(*BADGES, ask("look", "page-side", "persons"), names)
    assert (graph.level_of("names"), graph.parents["names"]) == ("persons", "badges")


def test_pipeline_cycle_error_lists_stages_in_cycle_order() -> None:
    """The stages of the cycle only, each waited for by the next."""
    circle = refusal(FIND, replace(LINES, after=("find", "read")), SIDE, READ)
    assert isinstance(circle, PipelineCycle)
    waits = {"lines": {"read"}, "side": {"lines"}, "read": {"lines", "side"}}
    assert set(circle.stages) <= set(waits)
    pairs = zip(circle.stages, (*circle.stages[1:], circle.stages[0]), strict=True)
    assert all(before in waits[after] for before, after in pairs)
    own = refusal(FIND, replace(LINES, after=("lines",)))
    assert isinstance(own, PipelineCycle)
    assert own.stages == ("lines",)


@pytest.mark.parametrize("name", ["", "Find", "a/b", "é", "-x", "x" * 64, "\N{GREEK SMALL LETTER ALPHA}"])
def test_illegal_stage_name_is_refused(name: str) -> None:
    with pytest.raises(BadName):
        graph_of(replace(FIND, name=name))


def test_duplicate_stage_name_is_refused() -> None:
    with pytest.raises(BadName, match=r"stages\[0\] has it already; give each stage a name"):
        graph_of(FIND, replace(FIND))


def test_stage_of_unknown_application_fits_any_data() -> None:
    """A stored pipeline whose applications have gone can still be shown, and its frames say `error`."""
    graph = Graph.of((*SIGNS, ask("loud", "speech", "find")), {})
    assert set(graph.takes.values()) == {Data.ANY, Data.REGIONS}
    assert graph.root_takes is Data.ANY


NAMES = [f"s{at}" for at in range(8)]
AFTER = st.lists(st.sampled_from([*NAMES, "other"]), max_size=3).map(tuple)
WHEN = st.none() | st.builds(When, st.sampled_from([*NAMES, "other"]))


def stage_of(name: str) -> st.SearchStrategy[Stage]:
    common: dict[str, Any] = {
        "name": st.just(name),
        "after": AFTER,
        "when": WHEN,
        "at_most": st.sampled_from([1, 64, 65]),
    }
    return st.one_of(
        st.builds(Ask, application_id=st.sampled_from(sorted(KINDS)), **common),
        st.builds(Crop, of=st.sampled_from(["regions", "objects"]), **common),
        st.builds(Pick, best=st.integers(1, 65), **common),
        st.builds(Join, **common),
    )


@st.composite
def chains(draw: st.DrawFn) -> tuple[Stage, ...]:
    """Graphs that are often right: each stage waits for some before it, with few that are odd."""
    stages: list[Stage] = [ask("s0", draw(st.sampled_from(["find-text", "objects"])))]
    for at in range(1, draw(st.integers(1, 8))):
        before = draw(st.lists(st.sampled_from([one.name for one in stages]), min_size=1, max_size=2, unique=True))
        odd = draw(stage_of(f"s{at}"))
        stages.append(replace(odd, after=tuple(before), when=None, at_most=8))
    return tuple(stages)


@given(st.integers(0, 8).flatmap(lambda n: st.tuples(*(stage_of(name) for name in NAMES[:n]))) | chains())
def test_random_pipeline_graph_is_refused_or_runnable(stages: tuple[Stage, ...]) -> None:
    """An accepted graph has an order that fits, levels on one chain, and parents that are waited for."""
    try:
        graph = graph_of(*stages)
    except BadInput:
        return
    by_name = {stage.name: stage for stage in stages}
    assert sorted(graph.order) == sorted(by_name)
    places = {name: at for at, name in enumerate(graph.order)}
    for before, after in graph.edges:
        assert places[before] < places[after]

    def above(level: str) -> list[str]:
        return [level] if level == ROOT else [level, *above(graph.level_parents[level])]

    for name, stage in by_name.items():
        level = graph.level_of(name)
        if isinstance(stage, Join):
            assert all(graph.level_parents[graph.level_of(one)] == level for one in stage.after)
        elif isinstance(stage, Crop):
            assert level == name
            assert graph.level_parents[name] == graph.level_of(graph.sources[name])
        else:
            assert all(graph.level_of(one) in above(level) for one in stage.before)
        parent = graph.parents[name]
        assert parent is None or places[parent] < places[name]
        if parent is not None:  # its nodes can be found: one of the parent's for each of its own items
            assert graph.level_of(parent) in above(level)
    takes_ms = dict.fromkeys(graph.order, 1.0)
    path = graph.critical_path(takes_ms)
    assert all(pair in graph.edges for pair in pairwise(path))
    assert len(path) == 1 + max(graph.longest_behind(takes_ms).values())
