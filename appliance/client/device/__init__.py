"""The SDK of devices: a camera's frames in, what to show now out, with what the box was promised to keep.

Light: numpy, websockets, httpx and pydantic, and OpenCV for pictures as arrays and for tracking. It is also a
distribution of its own, `edge-appliance-device`.
"""

from appliance.client.device.device import Device, Shown
from appliance.client.device.session import Accuracy, Box, Latency, Promise
from appliance.client.device.tracking.tracker import Tracked

__all__ = ["Accuracy", "Box", "Device", "Latency", "Promise", "Shown", "Tracked"]
