"""Devices of the SDK around a real box: cameras that give the same small JPEG, each with a thread for its sockets."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import cv2
import numpy as np

from appliance.client.device import Box, Device, Promise
from appliance.clock import NS_PER_S, SystemClock, pause_s
from appliance.domain.session import FrameEnd


def jpeg(pixels: int = 160) -> bytes:
    """Noise of that side."""
    noise = np.random.default_rng(1).integers(0, 255, (pixels // 8, pixels // 8, 3), np.uint8)
    return bytes(cv2.imencode(".jpg", cv2.resize(noise, (pixels, pixels), interpolation=cv2.INTER_CUBIC))[1])


@dataclass
class Crowd:
    """Devices, and the thread of all their cameras."""

    devices: list[Device] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def answered(self) -> list[int]:
        """Frames in time, of each."""
        return [device.counts.ends[FrameEnd.ANSWERED] for device in self.devices]

    def states(self) -> dict[str, int]:
        """How many are in which state."""
        states = [device.state for device in self.devices]
        return {state: states.count(state) for state in sorted(set(states))}

    def look(self, fps: float, picture: bytes) -> None:
        """The cameras, until the crowd is over."""
        clock = SystemClock()
        due_ns = clock.now_ns()
        while not self._is_over.is_set():
            each_ns = int(NS_PER_S / fps / max(1, len(self.devices)))
            for device in list(self.devices):
                device.see(picture)
                due_ns = max(due_ns + each_ns, clock.now_ns() - NS_PER_S)
                pause_s(max(0.0, (due_ns - clock.now_ns()) / NS_PER_S))
            if not self.devices:
                pause_s(0.05)

    def end(self) -> None:
        self._is_over.set()


@contextmanager
def crowd(box: Box, application: str, promises: Sequence[Promise], fps: float) -> Iterator[Crowd]:
    """All have joined; they leave at the end."""
    made = Crowd()
    cameras = threading.Thread(target=made.look, args=(fps, jpeg()), daemon=True)
    cameras.start()
    try:
        for number, promise in enumerate(promises):
            device = Device(box, application, fps=fps, promise=promise, name=f"d-{number}", wait=True)
            device.join()
            made.devices.append(device)
        yield made
    finally:
        made.end()
        cameras.join()
        for device in made.devices:
            device.leave()
