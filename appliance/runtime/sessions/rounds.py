"""When sessions are looked after and planned: three loops, each at its own pace and at once when it is asked to."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from appliance.clock import NS_PER_MS, NS_PER_S, Clock
from appliance.log import get as get_log
from appliance.runtime.sessions.register import Register
from appliance.runtime.sessions.services import Services
from appliance.runtime.sessions.storing import Storing

SERVE_NS = 500 * NS_PER_MS
"""Between two plans of the sessions with promises of latency (JF-17)."""
SERVE_APART_NS = 50 * NS_PER_MS
"""At least so much between two, whatever happens, ..."""
SERVE_APART = 4
"""... and so many times what the last one took, but never more than there is between two when nothing happens."""
OFFLOAD_NS = 200 * NS_PER_MS
"""Between two plans of those with promises of accuracy (AR-07)."""

log = get_log("sessions")


class Rounds:
    """Rests while there are no sessions."""

    def __init__(
        self,
        clock: Clock,
        services: Services,
        register: Register,
        storing: Storing,
        look_after: Callable[[int], Awaitable[None]],
    ) -> None:
        """`look_after`: what time alone brings about, at an instant; asked before plans of latency are made."""
        self._clock = clock
        self._services = services
        self._planning = services.applications.planning
        self._register = register
        self._storing = storing
        self._look_after = look_after

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._serve(), name="serve sessions")
                tasks.create_task(self._offload(), name="offload sessions")
                tasks.create_task(self._look_after_pipelines(), name="sessions of pipelines")
        finally:
            self._planning.close()

    async def _serve(self) -> None:
        while True:
            if self._register.is_empty and self._planning.is_over and self._storing.is_swept:
                await self._rest()
            start_ns = self._clock.now_ns()
            self._services.applications.replan.clear()
            try:
                await self._storing.sweep()
                await self._look_after(start_ns)
                await self._planning.adapt_all()
            except Exception:  # the old plans stay
                log.exception("sessions were not planned")
            end_ns = self._clock.now_ns()
            apart_ns = min(SERVE_NS, SERVE_APART * (end_ns - start_ns))
            await self._clock.sleep_until_ns(max(start_ns + SERVE_APART_NS, end_ns + apart_ns))
            await self._asked(self._services.applications.replan, start_ns + SERVE_NS)

    async def _offload(self) -> None:
        while True:
            if not self._register.live and self._planning.is_over:
                await self._rest()
            start_ns = self._clock.now_ns()
            self._services.applications.placed.clear()
            try:
                await self._planning.offload_all()
            except Exception:
                log.exception("sessions were not planned")
            await self._clock.sleep_until_ns(self._clock.now_ns() + SERVE_APART_NS)
            await self._asked(self._services.applications.placed, start_ns + OFFLOAD_NS)

    async def _look_after_pipelines(self) -> None:
        pipelines = self._services.pipelines
        while True:
            if not self._register.live:
                await self._rest()
            pipelines.replan.clear()
            try:
                await pipelines.look_after()
            except Exception:
                log.exception("sessions of pipelines were not looked after")
            await self._clock.sleep_until_ns(self._clock.now_ns() + SERVE_APART_NS)
            await self._asked(pipelines.replan, self._clock.now_ns() + SERVE_NS)

    async def _rest(self) -> None:
        """Until there is a session."""
        self._register.some.clear()
        await self._register.some.wait()

    async def _asked(self, event: asyncio.Event, until_ns: int) -> None:
        left_s = (until_ns - self._clock.now_ns()) / NS_PER_S
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, left_s)):
                await event.wait()
