"""Runs of networks in parts: each part where it is dispatched to, one deadline over all."""

import asyncio
from functools import partial
from typing import Any

from appliance.clock import NS_PER_S, NS_PER_US, Clock
from appliance.domain.request import RanPart, Request
from appliance.runtime.catalogue import Catalogue, Entry
from appliance.runtime.profiles.times import RunTimes
from appliance.runtime.serving.dispatcher import Dispatching, PartsDispatcher
from appliance.runtime.serving.eager import in_task
from appliance.runtime.serving.outcomes import EndedRun
from appliance.runtime.serving.parts import PartsRun
from appliance.runtime.serving.placement import Placed
from appliance.runtime.serving.queued_runs import QueuedRuns


class RunsInParts:
    """Event-loop thread only."""

    def __init__(self, clock: Clock, catalogue: Catalogue, queued: QueuedRuns, dispatching: Dispatching) -> None:
        self._clock = clock
        self._catalogue = catalogue
        self._queued = queued
        self._dispatching = dispatching

    async def run(
        self,
        request: Request,
        entry: Entry,
        placed: Placed,
        times: RunTimes | None,
        items: int,
        run_bytes: int,
    ) -> tuple[EndedRun, list[RanPart]]:
        """Run the parts of a network where they are dispatched to; the build is released when nothing of it runs any
        more. At the deadline the caller is told, as for a network that runs whole; so is one that goes away, and where
        others have rows in its run, that goes on for them.

        What its parts have taken is what it computed; whatever was between them, it waited. Also gives what ran where.

        Raises: RunAgain, DeadlineExceeded, RunFailed, ProcessorLost.
        """
        servable, build, *_ = placed
        assert servable.parts is not None
        expected_ns = None if times is None else self._queued.expected_ns(request, times, items)
        weights = self._catalogue.weights(entry.application, request.tenant)
        dispatcher = PartsDispatcher(self._dispatching, request, servable, build, expected_ns, run_bytes, weights)
        outputs = request.outputs if request.outputs is not None else [one.name for one in servable.variant.outputs]
        parts = PartsRun(self._clock, servable.parts.cut, request, outputs, items)
        work: asyncio.Task[dict[str, Any]] | None = None
        told_s = None if request.drop_ns is None else (request.drop_ns + NS_PER_US) / NS_PER_S
        try:
            await in_task()
            work = asyncio.create_task(parts.run(dispatcher))
            work.add_done_callback(partial(_close, dispatcher))
            async with asyncio.timeout_at(told_s):
                answer = await asyncio.shield(work)
        except TimeoutError:
            raise parts.too_late() from None
        finally:
            if work is None:
                dispatcher.close()
            elif not work.done():
                parts.is_left = True
                if not parts.is_shared:
                    work.cancel()
            del work  # it holds its error, and that this frame: a circle that would keep the tensors
        end_ns = self._clock.now_ns()
        if times is not None and parts.run_items:
            times.ran(parts.run_items, 1, parts.took_ns, end_ns)
        return (answer, end_ns - parts.took_ns, end_ns, parts.run_items), parts.ran


def _close(dispatcher: PartsDispatcher, work: "asyncio.Task[dict[str, Any]]") -> None:
    """Nothing is left to run of a request in parts."""
    dispatcher.close()
    if not work.cancelled():
        work.exception()  # whoever asked may have gone
