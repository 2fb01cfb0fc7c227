"""Boxes follow what moves: against views that move over a picture as it is known exactly."""

import numpy as np
import pytest

from appliance.client.device.sources import VIEW, Pan
from appliance.client.device.tracking.overlap import overlaps
from appliance.client.device.tracking.tracker import EMPTY, Found, Tracker
from tests.instances.scenes import scene, things

LIMITS = np.array([*VIEW, *VIEW], float)


def _there(boxes: np.ndarray, pan: Pan, frame: int) -> np.ndarray:
    """Where things of the photo are in a frame."""
    return np.asarray(boxes - np.tile(pan.offset(frame), 2))


def _is_whole(boxes: np.ndarray) -> np.ndarray:
    """Which lie within the view."""
    return np.asarray((boxes >= 0.0).all(axis=1) & (boxes <= LIMITS).all(axis=1))


def _agreement(pan: Pan, boxes: np.ndarray, *, stride: int, latency: int, frames: int) -> float:
    """Mean overlap with the truth, where the box answers exactly, `latency` frames later, every `stride` frames."""
    tracker, values = Tracker(), list[float]()
    shown = np.zeros(0, int)
    results: dict[int, tuple[int, np.ndarray]] = {}
    for frame in range(frames):
        truth = _there(boxes, pan, frame)
        if frame % stride == 0:
            results[frame + latency] = frame, np.flatnonzero(_is_whole(truth))
        renewed = None
        if frame in results:
            of_frame, shown = results[frame]
            renewed = of_frame, Found(_there(boxes, pan, of_frame)[shown], tuple(str(thing) for thing in shown))
        tracker.observe(frame, pan.frame(frame), renewed)
        for thing, box in zip(shown, tracker.boxes, strict=True):
            if _is_whole(truth[thing : thing + 1])[0]:
                values.append(float(overlaps(box[None], truth[thing][None])[0, 0]))
    assert len(values) > frames
    return float(np.mean(values))


@pytest.mark.parametrize("step", [(3.0, 1.0), (-7.3, 5.1), (12.0, 0.0), (8.4, 8.4)])
def test_tracker_follows_a_panning_camera(step: tuple[float, float]) -> None:
    """Up to 12 pixels a frame, a result every 8 frames that comes 3 later: overlap at least 0.90."""
    pan = Pan(scene(1), step=step)
    boxes = things(2, 40, pan.photo.shape[1], pan.photo.shape[0])
    assert _agreement(pan, boxes, stride=8, latency=3, frames=60) >= 0.90


@pytest.mark.parametrize("latency", [1, 6, 30])
def test_object_without_texture_moves_with_the_picture(latency: int) -> None:
    """Where a box shows nothing that could be followed; slow pans are not taken for slower ones."""
    pan = Pan(scene(11), step=(2.0, 1.0))
    box = np.array([[300.0, 200.0, 420.0, 310.0]])
    tracker = Tracker()
    for frame in range(45):
        renewed = None
        if frame >= latency:
            renewed = frame - latency, Found(_there(box, pan, frame - latency), ("thing",))
        tracker.observe(frame, pan.frame(frame), renewed if frame % 5 == 0 else None)
        if len(tracker.boxes):
            assert np.abs(tracker.boxes - _there(box, pan, frame)).max() < 1.0


def test_late_result_is_carried_from_its_frame_to_the_current_frame() -> None:
    """12 frames and 120 pixels later, in one step."""
    pan = Pan(scene(3), step=(10.0, 0.0))
    boxes = things(4, 30, 900, 700)
    tracker = Tracker()
    for frame in range(13):
        tracker.observe(frame, pan.frame(frame))
    known = np.flatnonzero(_is_whole(_there(boxes, pan, 0)) & _is_whole(_there(boxes, pan, 12)))
    found = Found(_there(boxes, pan, 0)[known], ("thing",) * len(known))
    carried = tracker.carried(found, 0, 12)
    assert carried is not None
    assert len(known) >= 3
    assert np.diag(overlaps(carried, _there(boxes, pan, 12)[known])).mean() >= 0.9
    assert np.array_equal(tracker.carried(found, 12, 12), found.boxes)  # type: ignore[arg-type]
    assert tracker.carried(found, 0, 99) is None


def test_box_of_an_approaching_object_grows() -> None:
    """A zoom of 1.5 % a frame."""
    photo, frames, boxes = scene(5), 10, np.array([[260.0, 180.0, 380.0, 300.0]])
    tracker = Tracker()
    for frame in range(frames):
        half = np.array(VIEW) / 2.0 / 1.015**frame
        patch = photo[int(500 - half[1]) : int(500 + half[1]), int(700 - half[0]) : int(700 + half[0])]
        import cv2

        image = cv2.resize(patch, VIEW, interpolation=cv2.INTER_CUBIC)
        tracker.observe(frame, image, (0, Found(boxes, ("thing",))) if frame == 0 else None)
    (box,) = tracker.boxes
    assert (box[2] - box[0]) / 120.0 == pytest.approx(1.015 ** (frames - 1), rel=0.05)


def test_object_ids_persist_over_results_in_another_order() -> None:
    """A new object gets a new id, an object that left loses its id."""
    pan = Pan(scene(6), step=(4.0, 0.0))
    boxes = np.array([[300.0, 100.0, 400.0, 200.0], [480.0, 250.0, 580.0, 360.0], [300.0, 380.0, 420.0, 460.0]])
    labels = ("cat", "dog", "cat")
    tracker = Tracker()
    tracker.observe(0, pan.frame(0), (0, Found(boxes[:2], labels[:2])))
    first = {thing.label: thing.id for thing in tracker.shown()}
    for frame in range(1, 6):
        tracker.observe(frame, pan.frame(frame))
    order = [2, 1, 0]
    tracker.observe(6, pan.frame(6), (4, Found(_there(boxes, pan, 4)[order], tuple(labels[at] for at in order))))
    assert [thing.id for thing in tracker.shown()] == [3, first["dog"], first["cat"]]
    tracker.observe(7, pan.frame(7), (7, EMPTY))
    assert tracker.shown() == ()


def test_object_outside_the_view_is_not_shown() -> None:
    """An object that is half outside is cut at the edge."""
    pan = Pan(scene(7), step=(12.0, 0.0))
    tracker = Tracker()
    tracker.observe(0, pan.frame(0), (0, Found(np.array([[40.0, 100.0, 140.0, 200.0]]), ("thing",), ({"score": 0.5},))))
    widths = []
    for frame in range(1, 13):
        tracker.observe(frame, pan.frame(frame))
        widths.append([thing.box[2] - thing.box[0] for thing in tracker.shown()])
    assert widths[6][0] == pytest.approx(56.0, abs=6.0)
    assert widths[-1] == []


def test_changed_frame_size_discards_earlier_pictures() -> None:
    """No earlier picture can be compared."""
    tracker = Tracker()
    tracker.observe(0, scene(8)[:480, :640], (0, Found(np.array([[40.0, 100.0, 140.0, 200.0]]), ("thing",))))
    tracker.observe(1, scene(8)[:720, :720])
    assert tracker.carried(EMPTY, 0, 1) is None
    assert len(tracker.shown()) == 1


def test_result_older_than_the_history_is_shown_unmoved() -> None:
    tracker = Tracker(history=4)
    for frame in range(6):
        tracker.observe(frame, scene(9)[:240, :320])
    box = np.array([[40.0, 100.0, 140.0, 200.0]])
    tracker.observe(6, scene(9)[:240, :320], (0, Found(box, ("thing",))))
    assert np.array_equal(tracker.boxes, box)


def test_picture_of_an_unsent_frame_is_kept_for_one_step_only() -> None:
    """Pictures of sent frames are kept for `history` frames."""
    pan, tracker = Pan(scene(9), step=(4.0, 2.0)), Tracker(history=12)
    boxes = np.array([[200.0, 200.0, 320.0, 300.0]])

    def carried(of_frame: int, to_frame: int) -> np.ndarray | None:
        return tracker.carried(Found(_there(boxes, pan, of_frame), ("thing",)), of_frame, to_frame)

    for frame in range(12):
        tracker.observe(frame, pan.frame(frame), is_sent=frame % 5 == 0)
    assert [frame for frame in range(12) if carried(frame, 11) is not None] == [0, 5, 10, 11]
    moved = carried(5, 11)
    assert moved is not None
    assert overlaps(moved, _there(boxes, pan, 11))[0, 0] > 0.95
    tracker.observe(12, pan.frame(12), is_sent=False)
    assert [frame for frame in range(13) if carried(frame, 12) is not None] == [5, 10, 12]


def test_pictures_before_the_last_result_are_forgotten() -> None:
    """But for the newest, from which the next step is made."""
    pan, tracker = Pan(scene(9), step=(4.0, 2.0)), Tracker()
    found = Found(np.array([[200.0, 200.0, 320.0, 300.0]]), ("thing",))
    for frame in range(6):
        tracker.observe(frame, pan.frame(frame))
    tracker.forget(3)
    assert [frame for frame in range(6) if tracker.carried(found, frame, 5) is not None] == [3, 4, 5]
    tracker.forget(9)
    assert [frame for frame in range(6) if tracker.carried(found, frame, 5) is not None] == [5]
