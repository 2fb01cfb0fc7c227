"""Tracking on devices: overlap with the exact truth on pans of up to 12 pixels a frame, with a result every 8 frames.

The view moves over a photo (`--photo`, as often as wanted; without it pictures made here) at a constant speed, so that
where every thing is in each frame is known exactly. Results are the truth of their frame and come `latency` frames
later. Boxes that lie whole in the view count. Asked: mean overlap (IoU) ≥ 0.90. Also estimated against true loss per
frame where results have the jitter of a detector.
"""

import argparse
from pathlib import Path

import cv2
import numpy as np

from appliance.client.device.answers import drop_of
from appliance.client.device.sources import VIEW, Pan
from appliance.client.device.tracking.overlap import overlaps
from appliance.client.device.tracking.tracker import Found, Tracker
from appliance.policies.sending.drop import DropEstimate
from tests.instances.pictures import scene, things

SPEEDS = (2.0, 4.0, 8.0, 12.0)
DIRECTIONS = (0.0, 35.0, 90.0, 200.0)
"""Degrees."""


def main() -> None:
    """A line a speed and latency, and the estimates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photo", type=Path, action="append", default=[])
    parser.add_argument("--frames", type=int, default=120)
    parser.add_argument("--stride", type=int, default=8)
    options = parser.parse_args()
    photos = [np.asarray(cv2.imread(str(path))) for path in options.photo] or [scene(seed) for seed in (1, 2)]
    for latency in (2, 4, 8):
        for speed in SPEEDS:
            values, held = [], []
            for at, photo in enumerate(photos):
                for angle in DIRECTIONS:
                    step = speed * float(np.cos(np.radians(angle))), speed * float(np.sin(np.radians(angle)))
                    tracked, still = overlap(Pan(photo, step=step), at, options.stride, latency, options.frames)
                    values += tracked
                    held += still
            print(
                f"latency {latency} frames, {speed:4.1f} px a frame: tracked {np.mean(values):.3f}, worst tenth below "
                f"{np.quantile(values, 0.1):.3f}; not tracked {np.mean(held):.3f} ({len(values)} boxes)"
            )
    for jitter in (0.0, 2.0, 4.0):
        base, rate, truth = estimated(photos[0], jitter, options.frames)
        print(f"jitter {jitter} px: base {base:.3f}, rate {rate:.4f} a frame; d / L says {truth:.4f}")


def overlap(pan: Pan, seed: int, stride: int, latency: int, frames: int) -> tuple[list[float], list[float]]:
    """Overlaps with the truth of what is shown, and of the results as they came."""
    boxes = things(seed, 40, pan.photo.shape[1], pan.photo.shape[0])
    tracker, tracked, held = Tracker(), list[float](), list[float]()
    of_frame, shown = 0, np.zeros(0, int)
    for frame in range(frames):
        renewed = None
        if frame >= latency and (frame - latency) % stride == 0:
            of_frame = frame - latency
            shown = np.flatnonzero(is_whole(there(boxes, pan, of_frame)))
            renewed = of_frame, Found(there(boxes, pan, of_frame)[shown], tuple(str(one) for one in shown))
        tracker.observe(frame, pan.frame(frame), renewed)
        truth = there(boxes, pan, frame)[shown]
        whole = is_whole(truth)
        tracked += np.diag(overlaps(tracker.boxes, truth))[whole].tolist()
        held += np.diag(overlaps(there(boxes, pan, of_frame)[shown], truth))[whole].tolist()
    return tracked, held


def estimated(photo: np.ndarray, jitter: float, frames: int) -> tuple[float, float, float]:
    """Base and rate as fitted, and the paper's drop / stride, where results jitter by so many pixels."""
    pan, random = Pan(photo, step=(8.0, 3.0)), np.random.default_rng(1)
    boxes = things(0, 40, pan.photo.shape[1], pan.photo.shape[0])
    tracker, estimate, simple = Tracker(), DropEstimate(), []
    known: list[tuple[int, Found]] = []
    for frame in range(frames):
        tracker.observe(frame, pan.frame(frame))
        if frame % 4:
            continue
        truth = there(boxes, pan, frame)
        at = np.flatnonzero(is_whole(truth))
        fresh = Found(truth[at] + random.normal(0.0, max(jitter, 1e-9), (len(at), 4)), tuple(str(one) for one in at))
        for of_frame, older in known[-2:]:
            carried = tracker.carried(older, of_frame, frame)
            assert carried is not None
            drop = drop_of(carried, older, fresh)
            estimate.observe(frame - of_frame, drop)
            simple.append(drop / (frame - of_frame))
        known.append((frame, fresh))
    fitted = estimate.fitted()
    assert fitted is not None
    return fitted.base, fitted.rate, float(np.median(simple))


def there(boxes: np.ndarray, pan: Pan, frame: int) -> np.ndarray:
    """Where things of the photo are in a frame."""
    return np.asarray(boxes - np.tile(pan.offset(frame), 2))


def is_whole(boxes: np.ndarray) -> np.ndarray:
    """Which lie within the view."""
    return np.asarray((boxes >= 0.0).all(axis=1) & (boxes <= np.array([*VIEW, *VIEW])).all(axis=1))


if __name__ == "__main__":
    main()
