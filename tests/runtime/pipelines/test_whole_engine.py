"""Pipelines over the whole engine in virtual time: real tasks, pictures and queues; only runs take as long as told."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.domain.catalogue import ImageSpec, Late, Quota, StateSpec, TaskKind, TaskSpec, TensorSpec
from appliance.domain.errors import BadMedia, Busy, DeadlineExceeded, QuotaExceeded, UnknownPipeline
from appliance.domain.pipeline import Ask, Crop, Pipeline, PipelinePlan, Region, Stage, StagePlan
from appliance.domain.request import Tensors
from appliance.domain.states import VariantState
from appliance.runtime.engine.portions import Portions
from appliance.runtime.pipelines.accounts import HOST
from appliance.runtime.pipelines.frame import FrameCall
from appliance.runtime.pipelines.pipelines import Pipelines
from appliance.runtime.pipelines.ports import ItemCall
from appliance.runtime.pipelines.runner import BoxStages
from appliance.runtime.pipelines.windows import DECODE, FrameWindows
from appliance.runtime.serving.predict import Call, Predictor
from appliance.tasks.base import Media
from tests.fakes.clock import story
from tests.fakes.engine import EngineBench
from tests.fakes.hand_clock import HandClock
from tests.fakes.media import FakeMedia
from tests.fakes.processor import Cost

LINES = 3
FIND = TaskSpec(TaskKind.OBJECT_DETECTION, ("line",), ImageSpec(), "end2end")
WHAT = TaskSpec(TaskKind.IMAGE_CLASSIFICATION, ("dark", "light"), ImageSpec(), "probabilities")
SIGNS: tuple[Stage, ...] = (
    Ask(name="find", application_id="t/find"),
    Crop(name="lines", after=("find",), of="objects"),
    Ask(name="what", after=("lines",), application_id="t/what"),
)


def model(inputs: Tensors) -> dict[str, Any]:
    """Finds three lines in each picture, below one another; and says whether a picture is light."""
    if "picture" in inputs:
        rows = [(0, 8 * at, 32, 8 * at + 8, 0.9 - 0.1 * at, 0) for at in range(LINES)]
        return {"y": np.array([rows] * len(inputs["picture"]), np.float32)}
    light = inputs["crop"].mean(axis=(1, 2, 3))
    return {"y": np.stack([1 - light, light], axis=1).astype(np.float32)}


class Desk:
    """A box without walls: pipelines over the bench's engine, whose media takes a millisecond a turn."""

    def __init__(
        self,
        *,
        workers: int = 2,
        held_bytes: int = 1 << 20,
        batches: bool = False,
        bench: EngineBench | None = None,
        media_clock: Clock | None = None,
        **quota: Any,
    ) -> None:
        self.bench = bench = bench or EngineBench(workers=workers, model=model)
        rows = (TensorSpec("y", "FP32", (-1, -1, 6)),)
        picture = (TensorSpec("picture", "FP32", (-1, 3, 32, 32)),)
        given = Quota(**quota)
        bench.add({"v": Cost(load_ms=0, run_ms=20)}, name="find", task=FIND, inputs=picture, outputs=rows, quota=given)
        crop, said = (TensorSpec("crop", "FP32", (-1, 3, 4, 4)),), (TensorSpec("y", "FP32", (-1, 2)),)
        cost = Cost(load_ms=0, run_ms=10, run_ms_by_batch={4: 12} if batches else {})
        self.what = bench.add({"v": cost}, name="what", task=WHAT, inputs=crop, outputs=said, quota=given)
        self.media = FakeMedia(bench.clock, 1.0)
        self.predictor = Predictor(
            clock=bench.clock,
            catalogue=bench.catalogue,
            engine=bench.engine,
            sequences=bench.sequences,
            media=self.media,
            texts=_NoTexts(),
            asset_path=lambda name: pytest.fail(name),
        )
        self.held = Portions(held_bytes)
        self.stages = stages = BoxStages(
            clock=media_clock or bench.clock,
            catalogue=bench.catalogue,
            engine=bench.engine,
            predictor=self.predictor,
            sequences=bench.sequences,
            media=self.media,
            held=self.held,
        )
        self.pipelines = Pipelines(
            clock=bench.clock, catalogue=bench.catalogue, engine=bench.engine, stages=stages, new_id=lambda: "one"
        )
        self.put()

    def put(self, stages: tuple[Stage, ...] = SIGNS, slo_ms: float = 1000.0) -> None:
        self.pipeline = Pipeline("t/signs", "t", "signs", slo_ms, stages)
        self.pipelines.put(self.pipeline)

    def ask(self, body: bytes = b"", **facts: Any) -> Any:
        call = FrameCall("t", "r", self.bench.clock.now_ns(), **facts)
        return self.pipelines.predict(self.pipeline, Media(body or picture()), call)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """With workers; nothing is left over at the end."""
        async with self.bench.working():
            yield
        self.assert_quiet()

    def assert_quiet(self) -> None:
        self.bench.assert_quiet()
        assert self.held.taken == 0
        assert self.pipelines.get("t/signs").frames.under_way == 0


class _NoTexts:
    """Nothing here is text."""

    async def tokenize(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def picture() -> bytes:
    """32 x 32 pixels, of which the second line is light."""
    pixels = np.zeros((32, 32, 3), np.uint8)
    pixels[8:16] = 255
    return bytes(cv2.imencode(".png", pixels)[1])


@story
async def test_frames_beyond_the_plan_have_a_lower_priority_than_planned() -> None:
    """Items beyond the plan of a planned frame go by their deadline, as all others of that frame."""
    desk = Desk()
    stage = desk.pipeline.stage("find")
    assert isinstance(stage, Ask)
    counted = ItemCall("t", "r", 0, 1000, is_planned=False)
    calls = [desk.stages.call_of(stage, one) for one in (counted, replace(counted, is_of_planned=False))]
    assert [call.priority for call in calls] == [0, -100]
    assert [call.beyond_plan for call in calls] == [True, True]


@story
async def test_frame_beyond_the_plan_is_turned_away_while_a_worker_is_busy() -> None:
    """With all workers free it is answered."""
    desk = Desk()
    async with desk.working():
        await desk.bench.pause(1)
        free = json.loads(await desk.ask(is_planned=False))
        planned = asyncio.create_task(desk.ask())
        await desk.bench.pause(10)
        busy = json.loads(await desk.ask(is_planned=False))
        await planned
    assert [frame["items"][0].get("none") for frame in (free, busy)] == [None, "dropped"]


@story
async def test_plan_for_fewer_frames_counts_on_the_client_that_joined_first() -> None:
    """The plan has room for the frames of one of two; of the other's, two that come at once are let through."""
    desk = Desk()
    live = desk.pipelines.get("t/signs")
    for session in ("first", "second"):
        await desk.pipelines.join("t/signs", 5, "t", session=session)
    live.new_plan(PipelinePlan(1, True, 1.0, 100.0, (), "", 5.0, 10.0))
    assert [live.is_served("second") for _ in range(4)] == [True, True, False, False]
    assert [live.is_served("first") for _ in range(4)] == [True] * 4


@story
async def test_frame_with_real_tasks_is_answered_with_labels_and_boxes() -> None:
    """Each crop is classified by itself, and its box is where it lies in the picture; the figures say what was done."""
    desk = Desk()
    async with desk.working():
        await desk.ask()
        answer = json.loads(await desk.ask())
    (found,) = answer["items"]
    said = [(crop["box"], crop["items"][0]["answer"]["labels"][0]["label"]) for crop in found["items"]]
    assert said == [([0, 0, 32, 8], "dark"), ([0, 8, 32, 16], "light"), ([0, 16, 32, 24], "dark")]
    assert answer["in_time"]
    assert answer["cost"] == {"seconds": 0.05, "joules": None, "price": None}
    # a millisecond each to read, to decode, to encode; runs of two workers; answers are encoded one after the other
    assert answer["timings_ms"] == {"find": 22.0, "lines": 1.0, "what": 22.0}
    status = desk.pipelines.status("t/signs")
    assert (status.frames.answered, status.frames.in_time, status.frames.late) == (2, 2, 0)
    assert status.stages["what"].items_per_frame == LINES
    assert status.cost.per_frame.seconds == pytest.approx(0.05)


@story
async def test_spending_with_shared_and_abandoned_runs_equals_busy_time() -> None:
    """Of pipelines and single calls together, to the nanosecond, though they share runs, and though a frame is given up
    in the middle of one.
    """
    desk = Desk(workers=1, batches=True)
    desk.put(slo_ms=75)
    single = Media(picture())
    async with desk.working():
        calls = [desk.ask() for _ in range(3)]
        alone = [
            desk.predictor.predict(desk.what, single, Call("t", str(at), desk.bench.clock.now_ns())) for at in range(4)
        ]
        await asyncio.gather(*calls, *alone)
        gone = asyncio.create_task(desk.ask())
        await desk.bench.pause(10)
        gone.cancel()
        await desk.bench.pause(100)
    live, (runs, busy_ms) = desk.pipelines.get("t/signs"), desk.bench.engine.run_totals()
    assert runs < 3 + 3 * LINES + 4 + 1, "some were shared"
    assert live.spending.total_ns > 0
    assert abs(live.spending.total_ns + desk.bench.engine.single_calls.total_ns - busy_ms * NS_PER_MS) < 100
    assert live.frames.dropped > 0


@story
async def test_dropped_items_count_as_expired_requests_of_the_application() -> None:
    """What would be late is refused before it is decoded, or in the queue; also where the application answers late."""
    desk = Desk()

    def outcomes(application: str, outcome: str) -> int:
        found = desk.bench.telemetry.of_application(application).values()
        return sum(one.outcomes.get(outcome, 0) for one in found)

    async with desk.working():
        await desk.ask()
        desk.bench.catalogue.put_application(replace(desk.what, late=Late.RUN))
        answer = json.loads(await desk.ask(timeout_ms=38))
        whats = [one["items"][0] for one in answer["items"][0]["items"]]
        assert [one.get("none") for one in whats] == [None, None, "dropped"]
        assert not answer["in_time"]
        assert outcomes("t/what", "expired") == 1
        runs = len(desk.bench.processor.ran)
        answer = json.loads(await desk.ask(timeout_ms=29))
        assert answer["items"] == [{"stage": "find", "none": "dropped", "items": []}]
        assert outcomes("t/find", "expired") == 1
        assert len(desk.bench.processor.ran) == runs
    assert desk.pipelines.status("t/signs").frames.dropped == 2


@story
async def test_frame_counts_as_one_request_and_items_as_concurrent_requests() -> None:
    """Of a tenant that may have two requests at once, two items are under way; of one request a second, one frame."""
    desk = Desk(workers=4, concurrent_requests=2)
    async with desk.working():
        await desk.ask()
        answer = json.loads(await desk.ask())
        assert answer["timings_ms"]["what"] > 20, "the third waits for one of the others, though workers are free"
        two = asyncio.create_task(desk.ask()), asyncio.create_task(desk.ask())
        await desk.bench.pause(1)
        with pytest.raises(QuotaExceeded):
            await desk.ask()
        await asyncio.gather(*two)
    rated = Desk(requests_per_s=1.0)
    async with rated.working():
        await rated.ask()
        with pytest.raises(QuotaExceeded):
            await rated.ask()


@story
async def test_picture_of_a_frame_counts_in_memory_while_needed() -> None:
    """Among the bodies in memory; without room for the picture the frame is refused."""
    desk = Desk()
    async with desk.working():
        frame = asyncio.create_task(desk.ask())
        await desk.bench.pause(15)
        assert desk.held.taken == 32 * 32 * 3
        await desk.bench.pause(13)
        assert desk.held.taken == 0, "all crops are tensors"
        await frame
    small = Desk(held_bytes=5000)
    async with small.working():
        first = asyncio.create_task(small.ask())
        await small.bench.pause(5)
        with pytest.raises(Busy):
            await small.ask()
        await first


@pytest.mark.parametrize(
    ("names", "decoded_bytes"),
    [(("find",), 0), (("find", "what"), 32 * 32 * 3), (("find", "table"), 0)],
    ids=["one network", "two networks", "one of two takes no picture"],
)
@story
async def test_picture_is_decoded_once_for_two_networks_that_take_it(
    names: tuple[str, ...], decoded_bytes: int
) -> None:
    """Else each decodes what it takes by itself, at the size that it needs."""
    desk = Desk()
    desk.bench.add({"v": Cost()}, name="table")
    asks = [Ask(name=name, application_id=f"t/{name}") for name in names]
    media = Media(picture())
    found = await desk.stages.read(media, asks, ItemCall("t", "r", 0, 1 << 62), is_cut=False)
    assert (desk.held.taken, found is media) == (decoded_bytes, not decoded_bytes)


@story
async def test_frame_of_a_tenant_deleted_meanwhile_ends_early() -> None:
    """Long before its deadline, without a word in the log: the frame has no places any more but the one that it has."""
    desk = Desk()
    async with desk.bench.working():
        frame = asyncio.create_task(desk.ask())
        await desk.bench.pause(15)
        desk.bench.catalogue.remove_tenant("t")
        begun_ns = desk.bench.clock.now_ns()
        answer = json.loads(await frame)
        assert desk.bench.clock.now_ns() - begun_ns < 100 * NS_PER_MS
        assert [item["stage"] for item in answer["items"]] == ["find"]
    assert desk.held.taken == 0


def _quarantine(desk: Desk) -> None:
    """Of `what` nothing is served any more."""
    model = desk.bench.catalogue.model_of(desk.what)
    variants = tuple(replace(one, state=VariantState.QUARANTINED) for one in model.variants)
    desk.bench.catalogue.put_model(replace(model, variants=variants))


@pytest.mark.parametrize("variant", [None, "gone"])
@story
async def test_fork_with_an_unserved_network_is_answered_by_the_other(variant: str | None) -> None:
    """The network is quarantined, or the only variant that may answer has gone: its item has no answer, and the other
    one's has.
    """
    desk = Desk()
    desk.put((Ask(name="what", application_id="t/what", variant=variant), SIGNS[0]))
    async with desk.working():
        if variant is None:
            _quarantine(desk)
        answer = json.loads(await desk.ask())
    assert [(one["stage"], one.get("none")) for one in answer["items"]] == [("what", "error"), ("find", None)]
    frames = desk.pipelines.status("t/signs").frames
    assert (answer["in_time"], frames.in_time, frames.errors, frames.dropped, frames.late) == (False, 0, 1, 0, 0)


@story
async def test_planned_variant_that_has_gone_is_replaced_until_the_next_plan() -> None:
    """The box chooses; a variant that the stage names is not replaced."""
    desk = Desk()
    async with desk.working():
        await desk.ask()
        row = StagePlan("what", "cpu", "gone", 1, 1, 10.0, 1.0, 10.0, 0.0)
        desk.pipelines.get("t/signs").new_plan(PipelinePlan(1, True, 1.0, 100.0, (row,), "", 10.0, 10.0))
        assert _variants(json.loads(await desk.ask())) == ["v"] * LINES
        desk.put((*SIGNS[:2], Ask(name="what", application_id="t/what", after=("lines",), variant="gone")))
        assert _variants(json.loads(await desk.ask())) == [None] * LINES


def _variants(answer: Any) -> list[str | None]:
    """That answered about the lines."""
    return [line["items"][0].get("variant") for line in answer["items"][0]["items"]]


class _Ticking(HandClock):
    """Every look at it is 3 ms after the one before."""

    def now_ns(self) -> int:
        self.pass_s(0.003)
        return super().now_ns()


@story
async def test_media_threads_are_metered_without_the_wait_for_a_thread() -> None:
    """Reading a frame and cutting it take what they take of a thread; plans know both, and pipelines pay for them as
    `host`.
    """
    desk = Desk(media_clock=_Ticking())
    live = desk.pipelines.get("t/signs")
    windows = FrameWindows(0, live.totals(), live.graph)
    async with desk.bench.working():
        await asyncio.gather(desk.ask(), desk.ask())
    observed = windows.look(NS_PER_S, live.totals())
    assert (observed.takes_ms[DECODE], observed.takes_ms["lines"]) == (3.0, 3.0)
    assert live.spending.by_kind[HOST] == 2 * 2 * 3 * NS_PER_MS


def _quad(side: float, at: int = 0) -> Region:
    """Of the picture's upper left."""
    return Region(((0.0, 0.0), (side, 0.0), (side, side), (0.0, side - 0.5)), False, 1.0, str(at))


@story
async def test_cutouts_of_a_frame_take_at_most_twice_the_pictures_bytes() -> None:
    """Cutouts that are copied; further ones are not made, nor begun with. They count before any is copied."""
    desk = Desk()
    call = ItemCall("t", "r", 0, 1 << 62)
    crop = SIGNS[1]
    image = await desk.stages.read(Media(picture()), (), call, is_cut=True)
    box = Region(((0.0, 0.0), (32.0, 0.0), (32.0, 32.0), (0.0, 32.0)), True)
    whole = 32 * 32 * 3
    made = await desk.stages.cut(crop, image, [_quad(32), box, _quad(32), _quad(32), box], call)
    assert [one is not None for one in made] == [True, True, True, False, True]
    assert desk.held.taken == 3 * whole
    (none,) = await desk.stages.cut(crop, made[0], [_quad(2)], call)
    assert none is None
    other = await desk.stages.read(Media(picture()), (), call, is_cut=True)
    outside = Region(((-9.0, -9.0), (-5.0, -9.0), (-5.0, -5.0), (-9.0, -5.0)), False)
    assert await desk.stages.cut(crop, other, [outside], call) == [None]
    desk.stages.release(other)
    assert desk.held.taken == 3 * whole
    for one in (image, *(one for one in made if one is not None)):
        desk.stages.release(one)
    assert desk.held.taken == 0
    small = Desk(held_bytes=whole + 100)
    image = await small.stages.read(Media(picture()), (), call, is_cut=True)
    begun_ns = small.bench.clock.now_ns()
    with pytest.raises(Busy):
        await small.stages.cut(crop, image, [_quad(32)], call)
    assert small.bench.clock.now_ns() == begun_ns, "no media thread had a turn"
    small.stages.release(image)
    assert small.held.taken == 0


@story
async def test_large_cutouts_take_a_media_turn_each() -> None:
    """The media threads serve other work in between, and no cutout begins after the deadline."""
    desk = Desk(held_bytes=1 << 25)
    body = bytes(cv2.imencode(".png", np.zeros((1200, 1200, 3), np.uint8))[1])
    call = ItemCall("t", "r", 0, 1 << 62)
    image = await desk.stages.read(Media(body), (), call, is_cut=True)
    begun_ns = desk.bench.clock.now_ns()
    made = await desk.stages.cut(SIGNS[1], image, [_quad(1100), _quad(10), _quad(1100), _quad(10)], call)
    assert desk.bench.clock.now_ns() - begun_ns == 4 * NS_PER_MS
    for one in made:
        desk.stages.release(one)
    taken = desk.held.taken
    again = await desk.stages.read(Media(body), (), call, is_cut=True)
    short = replace(call, deadline_ns=desk.bench.clock.now_ns() + 3 * NS_PER_MS // 2)
    with pytest.raises(DeadlineExceeded):
        await desk.stages.cut(SIGNS[1], again, [_quad(1100), _quad(1100)], short)
    desk.stages.release(again)
    assert desk.held.taken == taken
    desk.stages.release(image)
    assert desk.held.taken == 0


@story
async def test_pipeline_of_a_single_network_keeps_no_picture() -> None:
    """The network decodes for itself, and no turn of the media threads is spent beside that; a damaged picture is the
    caller's error.
    """
    desk = Desk()
    desk.put(SIGNS[:1])
    async with desk.working():
        await desk.ask()
        answer = json.loads(await desk.ask())
        assert answer["timings_ms"] == {"find": 22.0}
        with pytest.raises(BadMedia):
            await desk.ask(b"no picture")
    assert desk.pipelines.status("t/signs").frames.failed == 1


@story
async def test_changed_pipeline_keeps_clients_and_figures() -> None:
    """Frames under way end as they began; a pipeline that is removed is found no more."""
    desk = Desk()
    async with desk.bench.working():
        client = await desk.pipelines.join("t/signs", 5, "t")
        frame = asyncio.create_task(desk.ask())
        await desk.bench.pause(10)
        desk.put(SIGNS[:1])
        assert "what" in json.loads(await frame)["timings_ms"]
        status = desk.pipelines.status("t/signs")
        assert (status.clients, status.frames.answered, set(status.stages)) == ((client,), 1, {"find"})
        desk.pipelines.remove("t/signs")
        with pytest.raises(UnknownPipeline):
            await desk.ask()
    desk.bench.assert_quiet()


@story
async def test_state_of_a_network_goes_on_from_frame_to_frame_of_a_client() -> None:
    """Frames side by side wait for one another; each client has a state of its own, and a frame that comes after a
    later one has begun is too late for it (SC-02).
    """

    def add(inputs: Tensors) -> dict[str, Any]:
        return {"y": inputs["s"] + inputs["x"], "s_out": inputs["s"] + inputs["x"]}

    bench = EngineBench(workers=2, model=add)
    number, sum_of = TensorSpec("x", "FP32", (1,)), TensorSpec("s", "FP32", (1,))
    task = TaskSpec(state=(StateSpec("s", "s_out", (1,)),))
    outputs = (TensorSpec("y", "FP32", (1,)), TensorSpec("s_out", "FP32", (1,)))
    bench.add({"v": Cost(load_ms=0, run_ms=5)}, name="sum", task=task, inputs=(number, sum_of), outputs=outputs)
    desk = Desk(bench=bench)
    desk.put((Ask(name="sum", application_id="t/sum", is_stateful=True),))

    async def sums(client: str, *frames: tuple[int, int]) -> list[Any]:
        asked = [
            desk.ask(json.dumps({"inputs": {"x": [value]}}).encode(), client=client, number=number)
            for number, value in frames
        ]
        found = [json.loads(answer)["items"][0] for answer in await asyncio.gather(*asked)]
        return [item.get("none") or item["answer"]["outputs"]["y"]["data"][0] for item in found]

    async with bench.working():
        both = await asyncio.gather(sums("one", (1, 1), (2, 10), (3, 100)), sums("two", (1, 5), (2, 5)))
        assert [*both] == [[1, 11, 111], [5, 10]]
        assert await sums("one", (5, 1000), (4, 1)) == [1111, "dropped"]
    assert len(bench.sequences) == 2
    desk.assert_quiet()
