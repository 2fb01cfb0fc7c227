"""The drop estimate in frames (ARISE §2.2, §4.3): the first frame at a time, latencies, the reference stride."""

import math

EPSILON = 1e-9
"""Frames; a result due exactly at a display is in time, whatever floats make of it."""


def first_frame_at(ms: float, fps: float) -> int:
    """The first frame displayed (or captured) at or after `ms`."""
    return math.ceil(ms * fps / 1000.0 - EPSILON)


def latency_frames(network_ms: float, inference_ms: float, fps: float) -> int:
    """End-to-end latency in whole frame intervals, of `network_ms` = up + down."""
    return math.ceil((network_ms + inference_ms) * fps / 1000.0 - EPSILON)


def reference_stride(network_ms: float, inference_1_ms: float, fps: float) -> float:
    """Mean stride on a dedicated box with batch 1 and the smallest interval that the network keeps up with (the
    paper leaves it open).
    """
    interval = max(1, latency_frames(0.0, inference_1_ms, fps))
    return latency_frames(network_ms, inference_1_ms, fps) + (interval - 1) / 2.0
