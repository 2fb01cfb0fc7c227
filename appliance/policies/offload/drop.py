"""The drop estimate in closed form (ARISE §2.2, §4.3): strides, the reference setup, the longest interval that an
SLA allows.
"""

import math

EPSILON = 1e-9
"""Frames; a result due exactly at a display is in time, whatever floats make of it."""


def first_frame_at(ms: float, fps: float) -> int:
    """The first frame displayed (or captured) at or after `ms`."""
    return math.ceil(ms * fps / 1000.0 - EPSILON)


def stride_range(interval: int, latency_frames: int) -> tuple[int, int]:
    """Smallest and largest tracking stride: k and L + k − 1 (AR-01)."""
    return latency_frames, latency_frames + interval - 1


def drop_rate(drop: float, interval: int) -> float:
    """The client's estimate d / L of its drop per frame (AR-04; the paper's "slope f/L" means this)."""
    return drop / interval


def latency_frames(network_ms: float, inference_ms: float, fps: float) -> int:
    """End-to-end latency in whole frame intervals, of `network_ms` = up + down."""
    return math.ceil((network_ms + inference_ms) * fps / 1000.0 - EPSILON)


def reference_stride(network_ms: float, inference_1_ms: float, fps: float) -> float:
    """Mean stride on a dedicated box with batch 1 and the smallest interval that the network keeps up with (the
    paper leaves it open).
    """
    interval = max(1, latency_frames(0.0, inference_1_ms, fps))
    return latency_frames(network_ms, inference_1_ms, fps) + (interval - 1) / 2.0


def longest_interval(rate: float, slo: float, reference_drop: float, latency: int) -> float:
    """Largest interval L with rate·(k + (L−1)/2) − reference ≤ slo; below 1 there is none, infinite for a rate of 0."""
    if rate <= 0.0:
        return math.inf
    return math.floor(2.0 * ((slo + reference_drop) / rate - latency) + 1.0 + EPSILON)


def best_setting(
    rate: float, slo: float, reference_drop: float, batches: dict[int, tuple[float, int]], fps: float
) -> tuple[int, int, float]:
    """Step 1 (§4.4.1): (batch, interval, clients served if all were like this one); `batches` maps a size to
    (latency s, latency in frames).
    """
    best = (min(batches), 0, 0.0)
    for size in sorted(batches):
        seconds, latency = batches[size]
        interval = longest_interval(rate, slo, reference_drop, latency)
        capacity = size / seconds * interval / fps
        if interval >= 1 and capacity > best[2]:
            best = (size, int(interval), capacity)
    return best
