"""Which frames of a pipeline are within the rate that it is planned for, where not all fit."""

from appliance.clock import NS_PER_S

FRAMES_MIN, SECONDS = 2.0, 0.1
"""What may come at once: so many frames, or so much time of them."""


class Pacing:
    """A token bucket. All instants are the caller's."""

    def __init__(self, now_ns: int) -> None:
        self._tokens = FRAMES_MIN
        self._at_ns = now_ns

    def take(self, fps: float, now_ns: int) -> bool:
        """Take the place of a frame that comes now; whether there was one."""
        most = max(FRAMES_MIN, fps * SECONDS)
        self._tokens = min(most, self._tokens + max(0, now_ns - self._at_ns) / NS_PER_S * fps)
        self._at_ns = max(self._at_ns, now_ns)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
