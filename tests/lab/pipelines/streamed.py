"""Devices that stream frames through the pipeline that reads signs."""

from typing import Any

from tests.lab.pipelines.signs import document as signs

FAST = {"uplink_mbps": 100, "downlink_mbps": 500, "rtt_ms": 10}
CAMERA: dict[str, Any] = {"name": "camera", "pipeline": "signs", "rate_rps": 5, "network": FAST}


def document(*sessions: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """20 ms to find, 10 ms to read each of three lines, one worker; nobody else sends frames."""
    return signs({"latency_slo_ms": 400, **changes.pop("pipeline", {})}, sessions=list(sessions), **changes)
