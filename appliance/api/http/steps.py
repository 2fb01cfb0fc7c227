"""Long answers in steps, between which the event loop answers others."""

from appliance.clock import NS_PER_MS, Clock

STEP_NS = NS_PER_MS


class Steps:
    """Of one answer; its first step begins when this is made."""

    __slots__ = ("_began_ns", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ns = clock.now_ns()

    @property
    def is_over(self) -> bool:
        """Whether it is others' turn."""
        return self._clock.now_ns() - self._began_ns > STEP_NS

    async def pause(self) -> None:
        """Let others have their turn, and begin the next step."""
        await self._clock.sleep_until_ns(self._began_ns)
        self._began_ns = self._clock.now_ns()
