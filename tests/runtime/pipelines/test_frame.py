"""The run of a frame in virtual time: what runs when, what the answer says, and that nothing is left over."""

import asyncio
import gc
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from appliance.clock import NS_PER_MS, LoopClock
from appliance.domain.errors import ApplianceError, BadMedia, RunFailed
from appliance.domain.pipeline import Ask, Crop, Join, OnError, Pick, Pipeline, PipelinePlan, Stage, StagePlan, When
from appliance.runtime.pipelines import frame as frame_module
from appliance.runtime.pipelines.document import document
from appliance.runtime.pipelines.figures import RanAs, StageMeter
from appliance.runtime.pipelines.frame import IN_FLIGHT_MAX, TOGETHER_MAX, FrameCall, FrameRun
from appliance.runtime.pipelines.live import LivePipeline
from appliance.runtime.pipelines.ports import ItemCall, StageAnswer
from appliance.runtime.pipelines.windows import FrameWindows
from appliance.tasks.base import Media
from tests.fakes.clock import settle, story
from tests.fakes.stages import FakeStages, Path
from tests.runtime.pipelines.graphs import CROP, FIND, KINDS, READ, ask

pytestmark = pytest.mark.gate("a whole engine for minutes of virtual time")

WHAT = ask("what", "what", "crop")
LOOK = (FIND, CROP, WHAT)
STATE = ask("state", "what", "find", is_stateful=True)
Errors = dict[tuple[str, Path | str], ApplianceError]


def objects(*labels: str, score: float = 0.9) -> dict[str, Any]:
    boxes = [{"label": label, "score": score, "box": [0.0, 0.0, 10.0, 10.0]} for label in labels]
    return {"objects": boxes, "width": 100, "height": 100}


def says(stage: str, about: Path | str) -> Mapping[str, Any]:
    """Three objects; each is what it is labelled; a text of it."""
    if stage.startswith("find"):
        return objects("a", "b", "c")
    if stage.startswith("what"):
        return {"labels": [{"label": about[-1] if about else "root", "index": 0, "score": 0.5}]}
    return {"text": f"{stage} {about if isinstance(about, str) else '/'.join(about)}", "score": 0.5}


class Desk:
    """One pipeline over fake stages; frames of 100 ms."""

    runner: type[FakeStages] = FakeStages
    made: ClassVar[list["Desk"]] = []

    def __init__(self, *stages: Stage, slo_ms: float = 100.0, say: Any = says, **facts: Any) -> None:
        self.clock = LoopClock()
        self.stages = self.runner(self.clock, say, **facts)
        pipeline = Pipeline("t/p", "t", "p", slo_ms, stages)
        self.live = LivePipeline(pipeline, KINDS, self.stages, self.clock)
        self._count = 0
        self.made.append(self)

    def frame(self, client: str = "", number: int | None = None, **facts: Any) -> FrameRun:
        self._count += 1
        call = FrameCall("t", f"r{self._count}", self.clock.now_ns(), client=client, number=number, **facts)
        return FrameRun(self.live, call, self.stages, self.clock)

    async def ask(self, **facts: Any) -> tuple[Any, float]:
        """The answer's items, and the milliseconds that it took."""
        frame, begun_ns = self.frame(**facts), self.clock.now_ns()
        await frame.run(Media(b""))
        return items_of(frame), (self.clock.now_ns() - begun_ns) / NS_PER_MS

    async def pause(self, ms: float) -> None:
        await self.clock.sleep_until_ns(self.clock.now_ns() + int(ms * NS_PER_MS))


@pytest.fixture(autouse=True)
def nothing_left_over() -> Iterator[None]:
    """After each test its desks hold no picture, no slot and no bytes."""
    Desk.made.clear()
    yield
    gc.collect()
    for desk in Desk.made:
        desk.stages.assert_quiet()


def planned(number: int, variant: str = "v", **takes_ms: float) -> PipelinePlan:
    """A plan that serves `what`, and counts on two items a frame there."""
    rows = (StagePlan("what", "cpu", variant, 1, 1, 20.0, 1.0, 10.0, 0.0),)
    return PipelinePlan(number, True, 1.0, 50.0, rows, "", 10.0, takes_ms=takes_ms)


def items_of(frame: FrameRun) -> Any:
    return json.loads(document(frame, cost={}, is_in_time=True))["items"]


def outline(items: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The tree without what the networks said."""
    found: list[Any] = []
    for item in items:
        head = item["stage"] if "none" not in item else f"{item['stage']}: {item['none']}"
        found.append([head, *outline(item["items"])] if item["items"] else head)
    return found


@story
async def test_frame_goes_through_all_stages_and_is_answered_by_a_tree() -> None:
    """Each region is an item, and items run side by side; the tree has the places of what was cut."""
    desk = Desk(*LOOK, run_ms={"find": 20, "what": 10}, compute_ms=1)
    items, took_ms = await desk.ask()
    assert outline(items) == [["find", ["crop", "what"], ["crop", "what"], ["crop", "what"]]]
    (found,) = items
    assert found["variant"] == "v"
    assert [crop["box"] for crop in found["items"]] == [[0, 0, 10, 10]] * 3
    assert [crop["items"][0]["answer"]["labels"][0]["label"] for crop in found["items"]] == ["a", "b", "c"]
    assert took_ms == 1 + 1 + 20 + 1 + 1 + 10  # read, prepare, run; cut, prepare all three, run them
    assert desk.stages.turns == {"": 1, "find": 1, "crop": 1, "what": 1}


@story
async def test_stage_behind_a_fork_waits_for_both_parallel_stages() -> None:
    """Two networks look at the same item; the third waits for both, item by item."""
    stages = (
        FIND,
        CROP,
        WHAT,
        READ,
        ask("mean", "mean", "read", "what"),
    )
    desk = Desk(*stages, run_ms={"find": 5, "what": 20, "read": 10, "mean": 1})
    items, took_ms = await desk.ask()
    assert took_ms == 5 + 20 + 1
    assert desk.stages.asked("mean") == ["read a", "read b", "read c"]
    assert outline(items)[0][1] == ["crop", "what", ["read", "mean"]]


@story
async def test_pick_and_at_most_let_the_best_items_go_on() -> None:
    """`pick` among the items of one parent, by what was said of them; `at_most` of all items, by their regions."""

    def say(stage: str, about: Path | str) -> Mapping[str, Any]:
        if stage == "find":
            found = objects("a", "b", "c")
            for one, score in zip(found["objects"], (0.5, 0.9, 0.7), strict=True):
                one["score"] = score
            return found
        return {"labels": [{"label": "x", "index": 0, "score": {"a": 0.9, "b": 0.1, "c": 0.5}[about[-1]]}]}

    pick = Pick(name="best", after=("what",), best=2)
    stages = (*LOOK, pick, ask("read", "what", "best"))
    desk = Desk(*stages, ask("few", "what", "crop", at_most=1), say=say)
    items, _ = await desk.ask()
    assert outline(items)[0][1:] == [
        ["crop", ["what", ["best", "read"]], "few: condition"],
        ["crop", ["what", "best: condition"], "few"],
        ["crop", ["what", ["best", "read"]], "few: condition"],
    ]
    told = {name: (one.items, one.no_condition, one.outdone) for name, one in desk.live.figures.items()}
    assert (told["best"], told["few"], told["read"]) == ((3, 1, 1), (1, 2, 2), (2, 0, 0))


@story
async def test_failed_item_leaves_other_items_answered() -> None:
    errors: Errors = {("what", ("b",)): RunFailed(variant_id="v", reason="no")}
    desk = Desk(*LOOK, ask("read", "read", "what"), errors=errors)
    items, _ = await desk.ask()
    assert outline(items)[0][1:] == [
        ["crop", ["what", "read"]],
        ["crop", "what: error"],
        ["crop", ["what", "read"]],
    ]
    assert (desk.live.figures["what"].errors, desk.live.figures["read"].errors) == (1, 0)


@story
async def test_stage_that_must_not_fail_ends_the_frame_at_once() -> None:
    """With the answers so far; what is under way is cancelled."""
    errors: Errors = {("read", ("b",)): RunFailed(variant_id="v", reason="no")}
    stages = (*LOOK, ask("read", "read", "crop", on_error=OnError.FAIL))
    desk = Desk(*stages, run_ms={"what": 50, "read": 5}, errors=errors)
    frame, begun_ns = desk.frame(), desk.clock.now_ns()
    await frame.run(Media(b""))
    assert (desk.clock.now_ns() - begun_ns) / NS_PER_MS == 5
    assert frame.has_failed
    assert ["crop", "read: error"] in outline(items_of(frame))[0]
    assert desk.stages.asked("what") == []


@story
async def test_late_frame_is_counted_at_the_first_late_stage() -> None:
    """Once a frame, at the stage that is the first to end an item after the SLO, or to drop one."""
    desk = Desk(*LOOK, slo_ms=50.0, run_ms={"find": 30, "what": 30})
    for timeout_ms, late_at_find in ((1_000, 0), (40, 1)):
        await desk.ask(timeout_ms=timeout_ms)
        counts = {name: one.counts.late_frames for name, one in desk.live.figures.items()}
        assert counts == {"find": late_at_find, "crop": 0, "what": 1}
    assert desk.live.figures["find"].counts.dropped == 1


@story
async def test_item_that_cannot_be_in_time_is_dropped_before_a_run() -> None:
    """An item has the frame's deadline less what the stages behind take: the first network may not use up the time of
    the second."""
    desk = Desk(*LOOK, run_ms={"find": 60, "what": 30})
    frame = desk.frame(timeout_ms=89)
    await frame.run(Media(b""))
    assert outline(items_of(frame)) == ["find: dropped"]
    assert frame.has_dropped
    assert desk.stages.seen == []
    items, took_ms = await desk.ask(timeout_ms=90)
    assert (outline(items)[0][1], took_ms) == (["crop", "what"], 90)


@story
async def test_caller_of_an_unreadable_frame_gets_bad_media() -> None:
    errors: Errors = {("find", ()): BadMedia(reason="no")}
    for desk in (Desk(FIND, CROP, unread=BadMedia(reason="no")), Desk(FIND, errors=errors)):
        with pytest.raises(BadMedia):
            await desk.ask()


@story
async def test_frame_cancelled_by_the_caller_leaves_nothing_behind() -> None:
    """Whatever is under way at that moment."""
    for after_ms in (0, 0.5, 1.5, 3, 7.5, 8.5, 12, 13.5):
        desk = Desk(*LOOK, run_ms={"find": 5, "what": 5}, compute_ms=1)
        task = asyncio.create_task(desk.frame().run(Media(b"")))
        await desk.pause(after_ms)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task


@story
async def test_items_of_a_frame_are_prepared_together_within_limits() -> None:
    """As many at once as may be in flight, or as the frame's tenant may have; the first item needs no slot."""
    labels = [str(at) for at in range(60)]

    def say(stage: str, about: Path | str) -> Mapping[str, Any]:
        return objects(*labels) if stage == "find" else says(stage, about)

    stages = LOOK
    desk = Desk(*stages, say=say, run_ms={"what": 10}, slo_ms=1000)
    await desk.ask()
    assert desk.stages.most == IN_FLIGHT_MAX
    assert desk.stages.turns["what"] < 60
    assert desk.stages.turns["what"] >= 60 / TOGETHER_MAX
    narrow = Desk(*stages, say=say, run_ms={"what": 10}, slo_ms=1000, slots=2)
    items, took_ms = await narrow.ask()
    assert narrow.stages.most == 3
    assert took_ms == 200
    assert len(items[0]["items"]) == 60


@story
async def test_picture_of_a_frame_is_freed_after_the_last_preparation() -> None:
    """While networks still run."""
    desk = Desk(*LOOK, run_ms={"find": 5, "what": 20})
    task = asyncio.create_task(desk.frame().run(Media(b"")))
    await desk.pause(10)
    await settle()
    gc.collect()
    assert desk.stages.under_way == 3
    assert not list(desk.stages.alive)
    await task


@story
async def test_stateful_stage_keeps_the_order_of_a_clients_frames() -> None:
    """By number, whatever came first and whatever took longer before; another client's frames do not wait."""
    desk = Desk(FIND, STATE, run_ms={"find": 10, "state": 10})
    first, second, third = desk.frame("c", 2), desk.frame("c", 1), desk.frame("d", 9)
    await asyncio.gather(*(one.run(Media(b"")) for one in (first, second, third)))
    order = [one.request_id for one in desk.stages.seen if one.stage == "state"]
    assert order.index("r2") < order.index("r1")
    begun = {one.request_id: one.begun_ms for one in desk.stages.seen if one.stage == "state"}
    assert begun["r3"] == begun["r2"]
    late = desk.frame("c", 1)
    await late.run(Media(b""))
    assert outline(items_of(late)) == [["find", "state: dropped"]]


@story
async def test_items_beyond_the_plan_are_marked() -> None:
    """The plan counts on two items a frame at `what`; and says what a stage is expected to take."""
    desk = Desk(*LOOK, run_ms={"what": 1})
    desk.live.new_plan(planned(1, find=5.0, crop=0.0, what=40.0))
    await desk.ask()
    marks = [(name, call.is_planned, call.is_of_planned) for name, call in desk.stages.calls]
    assert marks == [("find", None, True), ("what", True, True), ("what", True, True), ("what", False, True)]
    find, what = desk.stages.calls[0][1], desk.stages.calls[1][1]
    assert what.deadline_ns - find.deadline_ns == 40 * NS_PER_MS
    desk.stages.calls.clear()
    await desk.ask(is_planned=False)
    marks = [(name, call.is_planned, call.is_of_planned) for name, call in desk.stages.calls]
    assert marks == [("find", None, False), *3 * [("what", False, False)]]


@story
async def test_crops_of_crops_stay_within_the_item_limit_of_a_frame() -> None:
    """Each stage finds three objects in all that it looks at: 3, 9, 27 ... are cut from as far as a frame may have
    items.
    """
    stages: list[Stage] = []
    for level in range(7):
        stages += (ask(f"find{level}", "find", *(one.name for one in stages[-1:])), inner(level, most=64))
    desk = Desk(*stages)
    await desk.ask()
    assert [desk.live.figures[f"find{level}"].items for level in range(7)] == [1, 3, 9, 27, 64, 64, 64]
    desk = Desk(FIND, CROP, ask("find2", "find", "crop"), inner(2, most=2))
    items, _ = await desk.ask()
    (found,) = items
    assert [len(crop["items"][0]["items"]) for crop in found["items"]] == [2, 2, 2]


def inner(level: int, *, most: int) -> Crop:
    return Crop(name=f"crop{level}", after=(f"find{level}",), of="objects", at_most=most)


@story
async def test_answer_that_finds_no_room_is_an_error() -> None:
    """In what a frame may have, and in what all frames may: the frame has its other answers, and gives all back."""
    text = b'{"labels":[]}'
    for most, facts in ((1000, {"room": 2 * len(text)}), (2 * len(text), {})):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(frame_module, "ANSWERS_BYTES_MAX", most)
            patch.setattr(frame_module, "SMALL_BYTES", len(text) - 1)
            desk = Desk(*LOOK, texts={"what": text}, **facts)
            items, _ = await desk.ask()
        assert outline(items) == [["find", ["crop", "what"], ["crop", "what"], ["crop", "what: error"]]]


@story
async def test_serialized_answers_are_joined_without_being_parsed() -> None:
    """And beside the event loop: what is put together may be millions of numbers."""
    desk = Desk(*LOOK, Join(name="all", after=("what",)), texts={"what": b'{"x":[1,2]}'})
    frame = desk.frame()
    await frame.run(Media(b""))
    (find,) = items_of(frame)
    assert find["items"][3]["answer"] == {"answers": [{"x": [1, 2]}] * 3}
    answer = frame.root.ends["all"].answer
    assert answer is not None
    assert answer.text == b'{"answers":[{"x":[1,2]},{"x":[1,2]},{"x":[1,2]}]}'


@story
async def test_end_of_a_frame_begins_no_frame_that_is_still_read() -> None:
    """A client's frames tell one another when they are through; a frame that is still read has begun no stage."""
    desk = Desk(FIND, ask("state", "what", "find", is_stateful=True), compute_ms=1)
    stays, leaves = desk.frame("c"), desk.frame("c")
    gone = asyncio.create_task(leaves.run(Media(b"")))
    stayed = asyncio.create_task(stays.run(Media(b"")))
    await settle()
    gone.cancel()
    await stayed
    assert outline(items_of(stays)) == [["find", "state"]]
    await asyncio.wait([gone])


@story
async def test_frame_that_is_still_read_does_not_count_in_items_per_frame() -> None:
    """Of two frames one is read at the first look, and the other is not: the first stage has one item a frame."""
    desk = Desk(FIND, compute_ms=10)
    windows = FrameWindows(desk.clock.now_ns(), desk.live.totals(), desk.live.graph)
    for _ in range(2):
        desk.live.frames.begins(desk.clock.now_ns())
    read, still = desk.frame(), desk.frame()
    await read.run(Media(b""))
    reading = asyncio.create_task(still.run(Media(b"")))
    await settle()
    seen = windows.look(desk.clock.now_ns(), desk.live.totals())
    assert (seen.frames, seen.items) == (2, {"find": 1.0})
    await reading
    assert windows.look(desk.clock.now_ns(), desk.live.totals()).items == {"find": 1.0}


@story
async def test_watcher_of_a_frame_is_shown_only_the_first_request() -> None:
    """The frame has begun with that request; the requests of stages behind have yet to begin."""
    desk = Desk(*LOOK)
    await desk.ask(watch=lambda request: None)
    assert [call.watch is not None for _, call in desk.stages.calls] == [True, False, False, False]


@story
async def test_frame_is_not_dropped_by_times_of_a_plan_that_does_not_serve() -> None:
    """By a plan that does not serve, or was made for no frames, `what` takes longer than there is; a frame is begun all
    the same. By a plan that serves, a frame is tried once in a second in which `what` has answered nothing.
    """
    nothing_keeps = PipelinePlan(1, False, None, None, (), "", 10.0, takes_ms={"what": 400.0})
    nobody_comes = PipelinePlan(1, True, 0.0, 0.0, (), "", 0.0, takes_ms={"what": 400.0})
    desk = Desk(*LOOK, run_ms={"what": 1})
    for plan in (nothing_keeps, nobody_comes):
        desk.live.new_plan(plan)
        items, _ = await desk.ask()
        assert "find: dropped" not in outline(items)
    desk.live.new_plan(planned(2, what=400.0))
    ends = []
    for _ in range(12):
        items, took_ms = await desk.ask()
        ends.append(outline(items))
        await desk.pause(100 - took_ms)
    assert ends[:10] + ends[11:] == [["find: dropped"]] * 11
    assert ends[10] == [["find", *[["crop", "what"]] * 3]]


@story
async def test_runs_of_unanswered_items_count_in_the_time_per_item() -> None:
    """An item takes no more where the deadline came in the middle of others."""
    desk = Desk(*LOOK, run_ms={"what": 1})
    desk.stages.errors = {("what", ("a",)): RunFailed(variant_id="v", reason="")}
    meter = StageMeter(desk.live.figures["what"], desk.live.spending)
    meter.ran("cpu", 2 * NS_PER_MS)
    meter.ran("cpu", 2 * NS_PER_MS)
    await desk.ask()
    assert desk.live.totals().ran["what"] == (3, 6 * NS_PER_MS)
    assert desk.live.totals().answered["what"] == 2


@story
async def test_frame_numbers_without_a_client_are_ignored() -> None:
    """Frames without a client count each for itself; none makes another late."""
    desk = Desk(FIND, ask("state", "what", "find", is_stateful=True))
    for number in (2**53 - 1, 1, 0):
        items, _ = await desk.ask(number=number)
        assert outline(items) == [["find", "state"]]


@story
async def test_prepared_items_go_to_the_variant_planned_at_preparation() -> None:
    """Though another variant is planned meanwhile, which may look at pictures of another size."""
    desk = Desk(*LOOK, compute_ms=4)
    desk.live.new_plan(planned(1, "fine"))
    frame = asyncio.create_task(desk.ask())
    await desk.pause(14)  # read, prepared and cut; now being prepared
    desk.live.new_plan(planned(2, "coarse"))
    await frame
    await desk.ask()
    assert [call.variant for name, call in desk.stages.calls if name == "what"] == ["fine"] * 3 + ["coarse"] * 3


@story
async def test_runs_are_told_apart_by_variant_kind_and_batch() -> None:
    """An item that shared a run has spent its part of the run."""
    desk = Desk(*LOOK, run_ms={"what": 2})
    await desk.ask()
    figures = desk.live.figures["what"]
    figures.ran_on(StageAnswer({}, "fine", "cuda", 8 * NS_PER_MS), 2 * NS_PER_MS, 1)
    assert figures.ran_as == {
        RanAs("v", "cpu", 1): (3, 6 * NS_PER_MS),
        RanAs("fine", "cuda", 4): (1, 2 * NS_PER_MS),
    }
    assert desk.live.totals().ran_as["what", RanAs("fine", "cuda", 4)] == (1, 2 * NS_PER_MS)


class Slow(FakeStages):
    """A network that does not answer about what is labelled `a` or `b`, whatever the deadline, and takes a while to be
    broken off.
    """

    async def ask(self, stage: Ask, prepared: Path | str, call: ItemCall) -> StageAnswer:
        try:
            if prepared in {("a",), ("b",)}:
                await self.clock.sleep_until_ns(1 << 40)
            return await super().ask(stage, prepared, call)
        except asyncio.CancelledError:
            await self.clock.sleep_until_ns(self.clock.now_ns() + 5 * NS_PER_MS)
            raise


class SlowDesk(Desk):
    """A pipeline over such a network."""

    runner = Slow


@story
async def test_stages_that_begin_when_a_frame_is_given_up_are_dropped() -> None:
    """A join of the items that have answers, and the best of the items of which all is known then."""
    best = ask("best", "read", "crop", at_most=1, when=When("what", score_min=0.1))
    desk = SlowDesk(*LOOK, Join(name="all", after=("what",)), best)
    items, took_ms = await desk.ask()
    assert took_ms == 115, "10 ms after its deadline, and 5 ms until all is broken off"
    (find,) = items
    crops, (joined,) = find["items"][:3], find["items"][3:]
    assert [[one.get("none") for one in crop["items"]] for crop in crops] == [
        ["dropped", "dropped"],
        ["dropped", "dropped"],
        [None, "dropped"],
    ]
    assert (joined["stage"], joined["none"]) == ("all", "dropped")


@story
async def test_frame_cancelled_again_while_ending_gives_all_slots_back() -> None:
    """The slots of its items among the tenant's requests, and its pictures."""
    desk = SlowDesk(*LOOK)
    frame = asyncio.create_task(desk.ask())
    await desk.pause(50)
    assert desk.stages.taken == 1
    frame.cancel()
    await settle()
    frame.cancel()
    with pytest.raises(asyncio.CancelledError):
        await frame
    await desk.pause(50)
