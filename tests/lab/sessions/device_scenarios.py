"""Scenarios with devices for tests: a depth-like network for glasses that track, a ladder of detectors for cameras."""

from typing import Any

from appliance.lab.scenario import Scenario, parse_scenario

DEPTH: dict[str, Any] = {
    "name": "depth",
    "variants": [
        {
            "name": "one",
            "size_mb": 170,
            "accuracy": 90,
            "load_ms": 300,
            "resident": True,
            "input_bytes": 50_000,
            "latency_ms": {"gpu": {"1": 10, "2": 14, "3": 18, "4": 22}},
        }
    ],
}
LADDER: dict[str, Any] = {
    "name": "yolo",
    "variants": [
        {
            "name": f"yolo-{side}",
            "size_mb": 250,
            "accuracy": accuracy,
            "load_ms": 170,
            "resident": True,
            "input_bytes": size,
            "input_px": side,
            "latency_ms": {"gpu": {"1": one, "2": 1.3 * one, "4": 1.9 * one}},
        }
        for side, accuracy, size, one in (
            (128, 22.0, 10_283, 23.0),
            (320, 40.8, 47_769, 27.4),
            (512, 46.7, 103_833, 35.9),
        )
    ],
}
FAST = {"uplink_mbps": 152, "uplink_sd": 6, "downlink_mbps": 1715, "rtt_ms": 14, "rtt_sd": 2}
GLASSES: dict[str, Any] = {
    "name": "glasses",
    "count": 3,
    "application": "depth",
    "fps": 60,
    "accuracy_slo": 0.04,
    "network": FAST,
}
CAMERA: dict[str, Any] = {
    "name": "camera",
    "count": 2,
    "application": "crossing",
    "rate_rps": 15,
    "network": {"uplink_mbps": 20, "rtt_ms": 10},
}


def document(**changes: Any) -> dict[str, Any]:
    """A box with both networks and one camera after another, with top-level keys replaced."""
    return {
        "seed": 3,
        "duration_s": 6,
        "box": {"memory_mb": 2000, "processors": [{"name": "gpu"}]},
        "models": [DEPTH, LADDER],
        "applications": [
            {"name": "depth", "model": "depth"},
            {"name": "crossing", "model": "yolo", "latency_slo_ms": 150},
        ],
        "sessions": [CAMERA],
        **changes,
    }


def scenario(**changes: Any) -> Scenario:
    return parse_scenario(document(**changes))
