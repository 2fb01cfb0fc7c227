"""A clock that a test moves by hand."""

import datetime

from appliance.clock import NS_PER_S


class HandClock:
    """Starts at second 1000 of monotonic time, on 2026-01-01 of civil time; both move together."""

    def __init__(self) -> None:
        self._now_ns = 1000 * NS_PER_S
        self._wall = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def now_ns(self) -> int:
        return self._now_ns

    def wall_now(self) -> datetime.datetime:
        return self._wall

    async def sleep_until_ns(self, deadline_ns: int) -> None:
        self.pass_s(max(0, deadline_ns - self._now_ns) / NS_PER_S)

    def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        self._now_ns += int(seconds * NS_PER_S)
        self.step_s(seconds)

    def step_s(self, seconds: float) -> None:
        """Set civil time forward or back; monotonic time knows nothing of it."""
        self._wall += datetime.timedelta(seconds=seconds)
