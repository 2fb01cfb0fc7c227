"""OpenVINO on the CPU."""

import sys

# Its import fails then, and OpenVINO goes on without: nothing is told to anybody.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
