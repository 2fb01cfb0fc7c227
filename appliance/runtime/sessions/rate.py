"""A token bucket: which frames of a session are within the rate that it was promised."""

from appliance.clock import NS_PER_S

SLACK = 1.02
"""Times the rate that passes: a device's clock is not the box's."""
FRAMES_MIN, SECONDS = 4.0, 0.25
"""What the bucket holds: so many frames, or so much time of them. A link may hold frames up and bring them together."""


class TokenBucket:
    """Of one session. All instants are the caller's."""

    def __init__(self, now_ns: int) -> None:
        self._tokens = FRAMES_MIN
        self._at_ns = now_ns

    def take(self, rate_rps: float, now_ns: int) -> bool:
        """Take the place of a frame that comes now, at a rate of so many a second; whether there was one."""
        most = max(FRAMES_MIN, rate_rps * SECONDS)
        gained = max(0, now_ns - self._at_ns) / NS_PER_S * rate_rps * SLACK
        self._tokens = min(most, self._tokens + gained)
        self._at_ns = max(self._at_ns, now_ns)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
