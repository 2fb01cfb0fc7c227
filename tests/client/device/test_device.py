"""A device against a box that speaks the stream's grammar on a real port: what is sent, shown, counted and survived."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
import pytest

from appliance.client.device import Accuracy, Box, Device, Latency, Shown
from appliance.client.device.answers import found_in
from appliance.client.device.device import _told
from appliance.client.device.encoding import encoded
from appliance.client.device.sources import Pan
from appliance.clock import NS_PER_S, SystemClock, pause_s
from appliance.domain.errors import ApplianceError
from appliance.domain.session import FrameEnd, VariantDrop
from appliance.policies.sending.sender import Skip
from appliance.wire.stream import HEAD_BYTES_MAX, FrameHead, Notice, PlanMessage, write_message
from tests.fakes.session_box import SessionBox, session_box
from tests.instances.scenes import scene

FPS = 60.0
PATIENCE = 15_000
BOX = [300.0, 200.0, 420.0, 310.0]


def _objects(frame: int, body: bytes) -> dict[str, Any]:
    """One object that stands still in the photo of `PAN`."""
    x, y = PAN.offset(PLACES.of(frame))
    at = [BOX[0] - x, BOX[1] - y, BOX[2] - x, BOX[3] - y]
    return {"objects": [{"label": "cat", "score": 0.9, "box": at}], "width": 640, "height": 480}


class _Places:
    """Number of a frame of the device → its place in the pan. The device numbers frames by its clock: a place is known
    only when `see` is back, and on a busy machine the box may be asked about the frame before.
    """

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._changed = threading.Condition()

    def put(self, frame: int, place: int) -> None:
        with self._changed:
            self._known[frame] = place
            self._changed.notify_all()

    def of(self, frame: int) -> int:
        """Waits until it is known."""
        with self._changed:
            assert self._changed.wait_for(lambda: frame in self._known, 240.0), f"nobody has seen frame {frame}"
            return self._known[frame]

    def clear(self) -> None:
        with self._changed:
            self._known.clear()


PLACES = _Places()
PAN = Pan(scene(11), step=(2.0, 1.0))


@pytest.fixture(autouse=True)
def _no_places() -> None:
    """Those of another test's device are not this one's."""
    PLACES.clear()


@pytest.fixture
def box(ports: None) -> Iterator[SessionBox]:
    with session_box(_objects) as box:
        yield box


def _device(box: SessionBox, **facts: Any) -> Device:
    asked: dict[str, Any] = {"fps": FPS, "promise": Latency(slo_ms=2000.0, rate_rps=FPS)} | facts
    return Device(Box(box.url, "secret"), "street", **asked)


def _seen_until(device: Device, is_done: Callable[[Shown], bool], frames: Iterator[Any] | None = None) -> Shown:
    """Give frames until something is shown."""
    frames = frames or PAN.frames()
    for place in range(PATIENCE):
        shown = device.see(next(frames))
        PLACES.put(shown.frame, place)
        if is_done(shown):
            return shown
        pause_s(1.0 / FPS)
    raise AssertionError(f"{PATIENCE} frames later: {device.counts}, {device.state}, {device.error}")


def _adds_up(device: Device) -> bool:
    counts = device.counts
    return counts.captured == counts.sent + counts.skipped and counts.sent == counts.ends.total()


def test_device_moves_objects_to_their_place_in_the_current_frame(box: SessionBox) -> None:
    """Not where the objects were when the frame was sent; the box hears what was promised, sent and asked."""
    box.delay_s = 0.1
    with _device(box, name="door", weight=2.0) as device:

        def has_all(shown: Shown) -> bool:
            """Also what takes some results to know, and a head that tells it: how many frames that is, time decides."""
            is_told = bool(box.heads) and box.heads[-1].drop_rate is not None and box.clocks > 0
            return PLACES.of(shown.frame) >= 40 and bool(shown.objects) and is_told

        shown = _seen_until(device, has_all, PAN.frames())
        x, y = PAN.offset(PLACES.of(shown.frame))
        truth = np.array([BOX[0] - x, BOX[1] - y, BOX[2] - x, BOX[3] - y])
        assert np.abs(np.array(shown.objects[0].box) - truth).max() < 4.0
        assert (shown.objects[0].label, shown.objects[0].id, shown.objects[0].facts) == ("cat", 1, {"score": 0.9})
        assert shown.of_frame is not None
        assert shown.frame > shown.of_frame
        assert shown.age_ms is not None
        assert shown.age_ms > 50.0  # the box took 100, by a timer that may ring early
        assert shown.state == device.state == "served"
        assert device.drop is not None
        assert device.stride_mean is not None
        assert device.uplink_mbps > 1.0
    assert _adds_up(device)
    assert set(box.keys) == {"Bearer secret"}
    assert box.ended == ["s-1"]
    assert box.orders == [
        {
            "application": "street",
            "fps": FPS,
            "promise": {"kind": "latency", "slo_ms": 2000.0, "rate_rps": FPS},
            "weight": 2.0,
            "wait": False,
            "name": "door",
        }
    ]
    head = box.heads[-1]
    assert head.variant == "a-320"
    assert head.drop_rate is not None
    assert head.captured is not None
    assert head.skipped is not None
    assert head.captured - head.skipped >= len(box.heads) - 1
    assert box.clocks >= 1


def test_frames_have_size_and_interval_of_the_current_plan(box: SessionBox) -> None:
    """Longer side 320 of 640 × 480; another plan, another size, one frame of three."""

    def has_come(variant: str, size: int) -> Callable[[Shown], bool]:
        return lambda shown: (box.heads[-1].variant, box.heads[-1].size) == (variant, size) if box.heads else False

    with _device(box) as device:
        _seen_until(device, has_come("a-320", 320))
        box.say(PlanMessage(number=2, variant="a-224", size=224, quality=60, interval=3))
        _seen_until(device, has_come("a-224", 224))
        before = len(box.heads)
        _seen_until(device, lambda shown: len(box.heads) > before + 5)
    pictures = {head.size: cv2.imdecode(np.frombuffer(box.bodies[head.frame], np.uint8), 1) for head in box.heads}
    shapes = {size: picture.shape for size, picture in pictures.items() if picture is not None}
    assert shapes[320] == (240, 320, 3)
    assert shapes[224] == (168, 224, 3)
    last = [head.frame for head in box.heads if head.variant == "a-224"]
    assert min(b - a for a, b in pairwise(last[1:])) >= 3
    assert device.counts.skips[Skip.NOT_PLANNED] > 0


def test_refused_session_raises_the_error_of_the_box_before_any_frame(box: SessionBox) -> None:
    box.refusal = {"type": "/problems/unknown-application", "title": "x", "status": 404, "name": "street"}
    with pytest.raises(ApplianceError), _device(box):
        raise AssertionError("it was refused")
    assert box.heads == []


def test_device_see_returns_at_once_while_the_box_is_silent(box: SessionBox) -> None:
    """A box that takes frames and says nothing: frames are skipped and counted. A call that waited would never end."""
    box.is_deaf = True
    with _device(box) as device:
        _seen_until(device, lambda shown: len(box.heads) >= 1)
        for _, frame in zip(range(30), PAN.frames(), strict=False):
            assert device.see(frame).objects == ()
        assert len(box.heads) <= 4  # the credit, of the first line and of one raced beside it
    assert _adds_up(device)
    assert device.counts.ends[FrameEnd.LOST] == device.counts.sent


def test_broken_connection_is_opened_again_within_the_session(box: SessionBox) -> None:
    """The box hears which result was seen last."""
    with _device(box) as device:
        _seen_until(device, lambda shown: shown.answer is not None)
        box.cut()
        before = len(box.heads)
        shown = _seen_until(device, lambda shown: len(box.heads) > before + 3 and shown.age_ms < 500.0)  # type: ignore[operator]
        assert shown.objects
        assert device.reconnects >= 1
    assert _adds_up(device)
    assert len(box.orders) == 1
    assert box.seen[0] is None
    assert int(box.seen[-1] or -1) >= 0


def test_reconnects_pause_while_the_box_closes_every_connection(box: SessionBox) -> None:
    """Else a device whose messages the box refuses would open hundreds of connections a second."""

    class Watched(SystemClock):
        pauses = 0

        async def sleep_until_ns(self, at_ns: int) -> None:
            Watched.pauses += at_ns - self.now_ns() > 0.2 * NS_PER_S
            await super().sleep_until_ns(at_ns)

    box.closes = True
    with _device(box, clock=Watched()) as device:
        _seen_until(device, lambda shown: device.reconnects >= 3)
        assert Watched.pauses >= 3


def test_connection_with_overdue_frames_is_raced_by_a_new_connection(box: SessionBox) -> None:
    """No close comes: frames are overdue, and another connection is opened beside the first."""
    with _device(box) as device:
        _seen_until(device, lambda shown: shown.answer is not None)
        box.is_deaf = True
        _seen_until(device, lambda shown: device.reconnects >= 1)
        box.is_deaf = False
        last = box.heads[-1].frame
        _seen_until(device, lambda shown: (shown.of_frame or 0) > last)
    assert _adds_up(device)
    assert device.counts.ends[FrameEnd.LOST] >= 1


def test_dropped_and_unreadable_frames_are_counted_and_stream_goes_on(box: SessionBox) -> None:
    """Dropped by their head, or answered with an error."""
    box.drops, box.errors = frozenset(range(0, 5000, 2)), frozenset(range(1, 5000, 4))
    with _device(box) as device:
        _seen_until(device, lambda shown: shown.answer is not None and device.counts.ends[FrameEnd.DROPPED] > 3)
    assert _adds_up(device)
    assert device.counts.ends[FrameEnd.ANSWERED] >= 1


def test_frames_not_taken_by_the_box_are_lost_without_a_reconnect(box: SessionBox) -> None:
    """The box does not count them, and the device does, at once."""
    box.untaken = frozenset(range(0, 5000, 2))
    with _device(box) as device:
        _seen_until(device, lambda shown: shown.answer is not None and device.counts.ends[FrameEnd.LOST] > 3)
        assert device.reconnects == 0
    assert _adds_up(device)


def test_ended_session_sends_no_more_frames(box: SessionBox) -> None:
    """The notice of the box and its reason reach the program; a stream that is refused says why."""
    with _device(box) as device:
        _seen_until(device, lambda shown: shown.answer is not None)
        box.end("no room: harbour/gate came back")
        shown = _seen_until(device, lambda shown: shown.state == "ended")
        assert device.notices[-1].reason == "no room: harbour/gate came back"
        sent = device.counts.sent
        for frame in (next(PAN.frames()) for _ in range(5)):
            shown = device.see(frame)
        assert (device.counts.sent, shown.state) == (sent, "ended")
        box.has_session = False
        box.cut()
        _seen_until(device, lambda shown: device.error is not None)
    assert _adds_up(device)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_error_inside_the_sdk_ends_the_stream_and_is_reported(box: SessionBox) -> None:
    """A new connection would meet the error again, for ever, and the program would not learn why no result comes."""

    class Mistaken(Device):
        def reports(self) -> dict[str, Any]:
            return super().reports() | {"captured": "many"}

    asked: dict[str, Any] = {"fps": FPS, "promise": Latency(slo_ms=2000.0, rate_rps=FPS)}
    with Mistaken(Box(box.url, "secret"), "street", **asked) as device:
        shown = _seen_until(device, lambda shown: device.error is not None)
        assert "captured" in str(device.error)
        assert (shown.state, device.reconnects) == ("ended", 0)
        for thread in [one for one in threading.enumerate() if one.name == "line"]:
            thread.join(120)
        assert device.line is not None
        device.line.wake()  # a frame was due just before: the camera's loop hears nothing of it


def test_notice_of_another_variant_reaches_the_program_with_accuracy(box: SessionBox) -> None:
    """Accuracy changes with the variant, which the program may want to show (X-05)."""
    with _device(box) as device:
        _seen_until(device, lambda shown: shown.answer is not None)
        notice = {"type": "notice", "kind": "variant", "state": "served", "variant": "a-224", "accuracy": 0.37}
        box.say(Notice.model_validate(notice))
        _seen_until(device, lambda shown: len(device.notices) == 1)
        assert device.notices[-1].accuracy == 0.37
        stages = [{"stage": "find", "variant": "fp32", "accuracy": 0.9}, {"stage": "read", "variant": "int8"}]
        reason = "read: int8 in place of fp32"
        box.say(Notice.model_validate(notice | {"variant": "", "stages": stages, "reason": reason}))
        _seen_until(device, lambda shown: len(device.notices) == 2)
        told = device.notices[-1]
        assert told.stages is not None
        assert [(one.stage, one.variant, one.accuracy) for one in told.stages] == [
            ("find", "fp32", 0.9),
            ("read", "int8", None),
        ]
        assert told.reason == reason


@pytest.mark.usefixtures("ports")
def test_answer_without_boxes_is_held_with_its_age() -> None:
    """The answer as it came, and how old it is; where nothing changes, nothing is lost."""
    with session_box(lambda frame, body: {"labels": [{"label": "cat", "score": 0.8}]}) as box:
        box.plan = PlanMessage(number=1, variant="a-320", size=320, quality=75, interval=6)
        with _device(box, promise=Accuracy(drop_max=0.02)) as device:
            shown = _seen_until(device, lambda shown: device.drop is not None and (shown.age_ms or 0.0) > 0.0)
            assert shown.objects == ()
            assert shown.answer is not None
            assert shown.answer["labels"][0]["label"] == "cat"
            assert shown.age_ms is not None
            assert shown.age_ms > 0.0
            assert device.drop is not None
            assert device.drop.rate == 0.0
        assert box.orders[0]["promise"] == {"kind": "accuracy", "drop_max": 0.02, "reference": "fresh"}


@pytest.mark.usefixtures("ports")
def test_device_on_a_pipeline_tracks_objects_of_the_first_stage() -> None:
    """What the first stage has found in the picture is tracked, what a stage has found in a cutout is not, and the
    answer is the whole tree.
    """

    def tree(frame: int, body: bytes) -> dict[str, Any]:
        inner = {"objects": [{"label": "dog", "score": 0.9, "box": [0.0, 0.0, 9.0, 9.0]}]}
        cut = {"stage": "cut", "box": BOX, "items": [{"stage": "look", "answer": inner, "items": []}]}
        node = {"stage": "find", "variant": "a", "answer": _objects(frame, body), "items": [cut]}
        kind = {"stage": "kind", "variant": "b", "answer": {"labels": []}, "items": []}
        return {"pipeline": "signs", "items": [kind, node], "in_time": True}

    with session_box(tree) as box:
        promise = Latency(slo_ms=2000.0, rate_rps=FPS)
        with Device(Box(box.url, "secret"), pipeline="signs", fps=FPS, promise=promise) as device:
            shown = _seen_until(device, lambda shown: len(shown.objects) > 0)
            assert [one.label for one in shown.objects] == ["cat"]
            assert shown.answer is not None
            assert shown.answer["pipeline"] == "signs"
        assert box.orders[0]["pipeline"] == "signs"
        assert "application" not in box.orders[0]
    both: dict[str, Any] = {"pipeline": "signs", "fps": FPS, "promise": promise}
    for application, asked in (("street", both), (None, both | {"pipeline": None})):
        with pytest.raises(TypeError):
            Device(Box("http://127.0.0.1:1", "secret"), application, **asked)


@pytest.mark.usefixtures("ports")
def test_object_boxes_are_in_pixels_of_the_camera_frame() -> None:
    """Of a camera of 640 × 480, though the box saw 320 × 240 and answered in that."""

    def halved(frame: int, body: bytes) -> dict[str, Any]:
        picture = cv2.imdecode(np.frombuffer(body, np.uint8), 1)
        assert picture is not None
        found = _objects(frame, body)["objects"][0]
        factor = picture.shape[1] / 640
        at = [side * factor for side in found["box"]]
        return {"objects": [found | {"box": at}], "width": picture.shape[1], "height": picture.shape[0]}

    with session_box(halved) as box, _device(box) as device:
        shown = _seen_until(device, lambda shown: len(shown.objects) > 0)
        assert box.heads[0].size is not None
        assert box.heads[0].size <= 320
        (left, top, right, bottom) = shown.objects[0].box
        assert right - left == pytest.approx(BOX[2] - BOX[0], rel=0.1)
        assert bottom - top == pytest.approx(BOX[3] - BOX[1], rel=0.1)


def test_pipeline_answer_with_objects_in_cutouts_only_is_not_tracked() -> None:
    """No place in the picture is known of such objects."""
    inner = {"stage": "look", "answer": {"objects": [{"box": [0.0, 0.0, 9.0, 9.0]}]}, "items": []}
    assert found_in({"pipeline": "signs", "items": [{"stage": "cut", "box": BOX, "items": [inner]}]}) is None
    assert found_in({"pipeline": "signs", "items": [{"stage": "find", "none": "dropped", "items": []}]}) is None


def test_picture_result_is_shown_as_received(box: SessionBox) -> None:
    """A picture comes behind its message."""
    box.picture = b"\x89PNG and so on"
    with _device(box) as device:
        shown = _seen_until(device, lambda shown: shown.picture is not None)
        assert shown.picture == box.picture


def test_jpeg_of_the_camera_is_sent_unchanged_and_its_result_held(box: SessionBox) -> None:
    jpeg = encoded(next(PAN.frames()), 640, 75)

    def forever() -> Iterator[bytes]:
        while True:
            yield jpeg

    with _device(box) as device:
        shown = _seen_until(device, lambda shown: shown.answer is not None, forever())
        assert shown.objects == ()
        assert json.dumps(shown.answer)
    assert set(box.bodies.values()) == {jpeg}
    assert {(head.size, head.quality) for head in box.heads} == {(None, None)}


def test_custom_encoder_gets_whole_frames_and_no_more_than_the_planned_size(box: SessionBox) -> None:
    """Hardware may take one size of frames only. Where the line looks slow, the size is smaller."""
    asked = []

    def encode(frame: Any, size_px: int, quality: int) -> bytes:
        asked.append((frame.shape, size_px))
        return encoded(frame, size_px, quality)

    with _device(box, encode=encode) as device:
        _seen_until(device, lambda shown: shown.answer is not None)
    assert {shape for shape, _ in asked} == {(480, 640, 3)}
    assert max(size for _, size in asked) <= 320
    assert {head.size for head in box.heads} <= {size for _, size in asked}


@pytest.mark.usefixtures("ports", "processes")
def test_running_device_imports_no_http_client_or_box_errors() -> None:
    """A device that is refused nothing has neither httpx nor the box's errors in memory, nor numpy's masked arrays."""
    still = {"objects": [{"label": "cat", "score": 0.9, "box": BOX}], "width": 640, "height": 480}
    with session_box(lambda frame, body: still) as box:
        code = f"""if True:
            import sys, time
            from appliance.client.device import Box, Device, Latency
            from appliance.client.device.sources import Pan
            from tests.instances.scenes import scene
            frames = Pan(scene(11), step=(2.0, 1.0)).frames()
            with Device(Box({box.url!r}), "street", fps={FPS}, promise=Latency(2000.0, {FPS})) as device:
                while not device.see(next(frames)).objects:
                    time.sleep(1 / {FPS})
                device.see(next(frames))
                print(*sys.modules)
        """
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert not {"httpx", "appliance.domain.errors", "numpy.ma", "fastapi"} & set(done.stdout.split())


def test_unreadable_camera_frame_is_skipped_and_counted(box: SessionBox) -> None:
    """The stream goes on."""

    def some() -> Iterator[Any]:
        for number, frame in enumerate(PAN.frames()):
            yield b"" if number < 5 else frame

    with _device(box) as device:
        _seen_until(device, lambda shown: shown.answer is not None and shown.frame > 10, some())
    assert _adds_up(device)


def test_frame_head_reports_drop_rate_and_gaps_by_variant(box: SessionBox) -> None:
    """After another plan the rates of both are known, and what the results of the first were behind the second's."""

    def has_come(enough: int, _: Shown) -> bool:
        return len(box.heads) > enough

    with _device(box) as device:
        _seen_until(device, lambda shown: bool(box.heads) and "a-320" in (box.heads[-1].drop_curves or {}))
        for number in range(2, 8):
            variant = "a-224" if number % 2 == 0 else "a-320"
            box.plan = PlanMessage(number=number, variant=variant, size=320, quality=75)
            box.say(box.plan)
            enough = len(box.heads) + 6
            _seen_until(device, partial(has_come, enough))
    curves = box.heads[-1].drop_curves or {}
    assert set(curves) == {"a-320", "a-224"}
    assert all(curve.rate is not None for curve in curves.values())


@pytest.mark.parametrize(("letters", "variants", "gaps"), [(10, 8, 56), (63, 8, 10), (63, 60, 0)])
def test_drop_curves_of_long_variant_names_fit_into_a_frame_head(letters: int, variants: int, gaps: int) -> None:
    """As many as there is room for, rates first: the box breaks the stream off at a head that is too large."""
    names = [f"{number:02}".ljust(letters, "x") for number in range(variants)]
    known = {one: VariantDrop(1 / 7, {other: 1 / 7 for other in names if other != one}) for one in names}
    told = _told(known)
    head = FrameHead(frame=2**50, captured_ms=1e9 / 7, bytes=2**40, variant=names[0], size=320, drop_curves=told)
    assert len(write_message(head)) < 0.75 * HEAD_BYTES_MAX
    assert len(told) == variants or gaps == 0
    assert gaps <= sum(len(curve["gaps"]) for curve in told.values())
