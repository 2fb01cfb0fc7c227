"""Frames through whatever pipelines Hypothesis draws: each is answered once, with the right answers at the right items,
whatever fails, is cancelled or comes too late; and nothing is left over.
"""

import asyncio
import gc
import json
from collections.abc import Mapping
from itertools import permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from appliance.clock import NS_PER_MS, LoopClock
from appliance.domain.errors import ApplianceError, DeadlineExceeded, RunFailed
from appliance.domain.pipeline import Ask, Crop, Join, NoAnswer, Pick, Pipeline, PipelinePlan, Stage, StagePlan, When
from appliance.runtime.pipelines.document import document
from appliance.runtime.pipelines.frame import FrameCall, FrameRun
from appliance.runtime.pipelines.items import Item
from appliance.runtime.pipelines.live import LivePipeline
from appliance.tasks.base import Media
from tests.fakes.clock import story
from tests.fakes.stages import FakeStages, Path
from tests.harness.lanes import examples
from tests.runtime.pipelines.graphs import ALL, CROP, FIND, KINDS, LABELS, READ, Expected, Thing, World, ask, pipelines

pytestmark = pytest.mark.gate("a whole engine for minutes of virtual time")

TIMES_MS = st.dictionaries(st.sampled_from([f"s{at}" for at in range(9)]), st.sampled_from([1.0, 3.0, 7.0]))
Errors = Mapping[tuple[str, Path | str], NoAnswer]
KEPT_BY_ONE_OF_SEVEN = Pipeline(
    "t/p",
    "t",
    "p",
    10_000.0,
    (
        Ask(name="s0", application_id="t/find"),
        Crop(name="s1", after=("s0",), of="objects", at_most=2),
        *(Ask(name=f"s{at}", after=("s0",), at_most=1, application_id="t/find") for at in range(2, 6)),
        Ask(name="s6", after=("s0",), at_most=1, application_id="t/find", is_stateful=True),
    ),
)
"""Only the last stage keeps the order of frames."""
_SLOW = settings(examples(gate=5), suppress_health_check=[HealthCheck.too_slow])


@st.composite
def failures(draw: st.DrawFn) -> Errors:
    """Of any stage about anything: too late, or broken."""
    paths = st.lists(st.sampled_from(LABELS), max_size=2).map(tuple) | st.sampled_from(LABELS)
    stages = st.sampled_from([f"s{at}" for at in range(9)])
    return draw(
        st.dictionaries(st.tuples(stages, paths), st.sampled_from([NoAnswer.ERROR, NoAnswer.DROPPED]), max_size=6)
    )


def raised(errors: Errors) -> dict[tuple[str, Path | str], ApplianceError]:
    return {
        key: RunFailed(variant_id="v", reason="no") if none is NoAnswer.ERROR else DeadlineExceeded(waited_ms=1)
        for key, none in errors.items()
    }


def found(item: Item) -> list[tuple[str, tuple[int, ...], Any, dict[str, Any]]]:
    """Every item below one, with how each stage ended about it."""
    places = [(item, ())]
    rows = []
    for one, path in places:
        ends = {name: end.none or (end.answer.body if end.answer else None) for name, end in one.ends.items()}
        rows.append((one.level, path, one.region, ends))
        places += [(child, (*path, at)) for level in one.children.values() for at, child in enumerate(level)]  # type: ignore[misc]
    return sorted(rows, key=lambda row: (row[0], row[1]))


def expected(things: list[Thing]) -> list[tuple[str, tuple[int, ...], Any, dict[str, Any]]]:
    rows = [(thing.level, thing.path, thing.region, thing.ends) for thing in things]
    return sorted(rows, key=lambda row: (row[0], row[1]))


async def _answered_as_in_sequence(
    pipeline: Pipeline, seed: int, run_ms: dict[str, float], compute_ms: float, errors: Errors, slots: int
) -> int:
    """How many items the frame has come to."""
    clock, world = LoopClock(), World(pipeline, seed)
    stages = FakeStages(clock, world.says, run_ms, compute_ms, raised(errors), slots=slots)
    live = LivePipeline(pipeline, KINDS, stages, clock)
    frame = FrameRun(live, FrameCall("t", "r", clock.now_ns()), stages, clock)
    await frame.run(Media(b""))
    wanted = Expected(pipeline, world, errors)
    assert found(frame.root) == expected(wanted.things)
    told = json.loads(document(frame, cost={}, is_in_time=True))
    assert {"pipeline", "items", "timings_ms", "cost", "in_time", "request_id"} == set(told)
    del frame
    gc.collect()
    stages.assert_quiet()
    return len(wanted.things)


@_SLOW
@given(pipelines(), st.integers(0, 999), TIMES_MS, st.sampled_from([0.0, 0.5]), failures(), st.sampled_from([0, 2, 99]))
@story
async def test_frame_answers_are_those_of_stages_run_in_sequence(
    pipeline: Pipeline, seed: int, run_ms: dict[str, float], compute_ms: float, errors: Errors, slots: int
) -> None:
    """Whichever stage takes how long, and whichever fails."""
    count = await _answered_as_in_sequence(pipeline, seed, run_ms, compute_ms, errors, slots)
    event(f"items {min(9, count)}")


SHAPES: dict[str, tuple[Stage, ...]] = {
    "conditions on an answer about an item, and on the label of its region": (
        ask("what", "what", "crop"),
        ask("more", "read", "crop", when=When("what", labels_not=("b",))),
        ask("most", "read", "crop", when=When("crop", labels=("c",))),
    ),
    "the text of a join, of all items or of none, goes on": (READ, ALL, ask("mean", "mean", "all")),
    "behind picks the answer of the stage that they chose by goes on": (
        READ,
        Pick(name="best", best=2, after=("read",)),
        Pick(name="one", best=1, after=("best",)),
        Join(name="all", after=("best",)),
        Join(name="few", after=("one",)),
        ask("mean", "mean", "all"),
        ask("own", "mean", "one"),
    ),
    "crops of a crop": (
        ask("find2", "find", "crop"),
        Crop(name="inner", after=("find2",), of="objects"),
        ask("what", "what", "inner"),
    ),
    "a join behind a crop that is made of some items only": (
        ask("find2", "find", "crop"),
        Crop(name="inner", after=("find2",), of="objects", when=When("find2", labels=("c",))),
        ask("what", "what", "inner"),
        Join(name="all", after=("what",)),
    ),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("stages", SHAPES.values(), ids=SHAPES)
@story
async def test_answers_of_usual_pipelines_are_those_of_stages_run_in_sequence(
    stages: tuple[Stage, ...], seed: int
) -> None:
    pipeline = Pipeline("t/p", "t", "p", 10_000.0, (FIND, CROP, *stages))
    await _answered_as_in_sequence(pipeline, seed, {}, 0.0, {}, 99)


@_SLOW
@given(
    pipelines(on_error=True, stateful=True),
    st.integers(0, 999),
    TIMES_MS,
    failures(),
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 1.0, 4.0]),
            st.sampled_from(["", "one", "two"]),
            st.none() | st.integers(0, 9),
            st.none() | st.sampled_from([0.0, 0.5, 2.0, 6.0]),
            st.sampled_from([3.0, 9.0, 30.0, 1000.0]),
        ),
        min_size=1,
        max_size=5,
    ),
)
@example(KEPT_BY_ONE_OF_SEVEN, 0, {}, {}, [(0.0, "", number, None, 3.0) for number in (None, 1, 0)])
@example(KEPT_BY_ONE_OF_SEVEN, 0, {"s6": 7.0}, {}, [(0.0, "one", number, None, 1000.0) for number in (1, 2, 0)])
@story
async def test_frame_ends_exactly_once_in_time_and_leaves_nothing(
    pipeline: Pipeline,
    seed: int,
    run_ms: dict[str, float],
    errors: Errors,
    frames: list[tuple[float, str, int | None, float | None, float]],
) -> None:
    """Several frames at once, of several clients: some are cancelled, plans come between, little time is left."""
    clock, world = LoopClock(), World(pipeline, seed)
    stages = FakeStages(clock, world.says, run_ms, 0.5, raised(errors), slots=3)
    live = LivePipeline(pipeline, KINDS, stages, clock)
    ends: list[str] = []
    arrived: list[int] = []

    async def one(at: int) -> None:
        after_ms, client, number, cancelled_ms, timeout_ms = frames[at]
        await clock.sleep_until_ns(clock.now_ns() + int(after_ms * NS_PER_MS))
        begun_ns = clock.now_ns()
        frame = FrameRun(live, FrameCall("t", f"r{at}", begun_ns, timeout_ms, client, number), stages, clock)
        arrived.append(at)
        task = asyncio.create_task(frame.run(Media(b"")))
        if cancelled_ms is not None:
            asyncio.get_running_loop().call_later(cancelled_ms / 1000, task.cancel)
        try:
            await task
            document(frame, cost={}, is_in_time=True)
            ends.append("answered")
        except asyncio.CancelledError:
            assert cancelled_ms is not None
            ends.append("cancelled")
        except DeadlineExceeded:  # its input could not be read in time
            ends.append("unread")
        assert (clock.now_ns() - begun_ns) / NS_PER_MS <= timeout_ms + 10
        if ends[-1] == "answered" and not frame.has_failed:
            _check_whole(frame)

    async def plan() -> None:
        for number in (1, 2):
            await clock.sleep_until_ns(clock.now_ns() + 2 * NS_PER_MS)
            rows = tuple(StagePlan(name, "cpu", "v", 1, 1, 10.0, 1, 1, 0) for name in live.stages if number == 1)
            live.new_plan(PipelinePlan(number, True, 1, 1, rows, "", 10.0, takes_ms={"s0": float(number)}))

    await asyncio.gather(plan(), *(one(at) for at in range(len(frames))))
    assert len(ends) == len(frames)
    _check_order(pipeline, stages, frames, arrived)
    gc.collect()
    stages.assert_quiet()
    for at, (_, client, number, *_rest) in enumerate(frames):
        place = live.order.enter(client, number, lambda: None)
        assert all(place.is_turn(name) for name in live.stages), f"frame {at} holds its place"
        place.leave()


def _check_whole(frame: FrameRun) -> None:
    """Every stage has ended about every item that it could be asked about."""
    live = frame.live
    for level, _path, _region, ends in found(frame.root):
        for name in live.stages:
            if live.level_of(name) == level:
                assert name in ends, f"{name} has not ended about an item of {level!r}"


def _check_order(pipeline: Pipeline, stages: FakeStages, frames: list[Any], arrived: list[int]) -> None:
    """At a stage that keeps the order, frames of one client that were asked about came one after the other: by their
    numbers; those without one, and those of nobody who has joined, whose numbers say nothing, as they `arrived`.
    """
    for stage in pipeline.stages:
        if not (isinstance(stage, Ask) and stage.is_stateful):
            continue
        asked = [seen for seen in stages.seen if seen.stage == stage.name]
        for first, second in permutations(asked, 2):
            if _comes_before(int(first.request_id[1:]), int(second.request_id[1:]), frames, arrived):
                assert first.ended_ms <= second.begun_ms, (first, second)


def _comes_before(one: int, other: int, frames: list[Any], arrived: list[int]) -> bool:
    """Whether the frame `one` has to be through before `other` begins."""
    (_, client, number, *_), (_, others, others_number, *_) = frames[one], frames[other]
    if client != others:
        return False
    if not client or number is None is others_number:
        return arrived.index(one) < arrived.index(other)
    return number is not None and others_number is not None and number < others_number
