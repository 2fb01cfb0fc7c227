"""Variants that crash again and again stop being served until somebody releases them."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from appliance.clock import NS_PER_S, Clock
from appliance.domain.states import VariantState
from appliance.log import get as get_log

if TYPE_CHECKING:
    from appliance.modelstore.store.models import Models

log = get_log("quarantine")
CRASHES_MAX = 3
WITHIN_S = 600


class Quarantine:
    """Counts crashes by build. Event-loop thread only."""

    def __init__(
        self, clock: Clock, models: "Callable[[], Awaitable[Models]]", variants_of: Callable[[str], Iterable[str]]
    ) -> None:
        """`models`: the store's, which is made after the first builds are served; `variants_of`: ids of the variants
        that a build serves.
        """
        self._clock = clock
        self._models = models
        self._variants_of = variants_of
        self._crashes: dict[str, deque[int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def crashed(self, build_id: str, reason: str) -> None:
        """A run or load of it ended its process; the third time in ten minutes its variants are put away."""
        now_ns = self._clock.now_ns()
        times = self._crashes.setdefault(build_id, deque(maxlen=CRASHES_MAX))
        times.append(now_ns)
        if len(times) < CRASHES_MAX or now_ns - times[0] > WITHIN_S * NS_PER_S:
            return
        del self._crashes[build_id]
        text = f"its process ended {CRASHES_MAX} times within {WITHIN_S // 60} minutes, the last time: {reason}"
        task = asyncio.create_task(self._put_away(list(self._variants_of(build_id)), text), name="quarantine")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _put_away(self, variants: list[str], reason: str) -> None:
        models = await self._models()
        for variant in variants:
            log.warning("variant quarantined", variant_id=variant, reason=reason)
            await models.set_variant_state(variant, VariantState.QUARANTINED, reason)
