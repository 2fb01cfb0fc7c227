"""Variants that crash again and again stop being served until somebody releases them. Where another kind of processor
has them crash than the first one, they serve there no more until the next start or release, and on the first one
instead.
"""

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
        self,
        clock: Clock,
        models: "Callable[[], Awaitable[Models]]",
        variants_of: Callable[[str], Iterable[str]],
        avoid: Callable[[str], bool] = lambda build_id: False,
        tell: Callable[[str, str], None] = lambda build_id, reason: None,
    ) -> None:
        """`models`: the store's, which is made after the first builds are served; `variants_of`: ids of the variants
        that a build serves. `avoid` has them serve on another kind of processor than a build is for; False: there is
        none. `tell`: told of each build that is avoided, and why.
        """
        self._avoid, self._tell = avoid, tell
        self._clock = clock
        self._models = models
        self._variants_of = variants_of
        self.crashes: dict[str, deque[int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def crashed(self, build_id: str, reason: str) -> None:
        """A run or load of it ended its process; the third time in ten minutes its variants are put away."""
        now_ns = self._clock.now_ns()
        self.crashes = {one: times for one, times in self.crashes.items() if now_ns - times[-1] <= WITHIN_S * NS_PER_S}
        times = self.crashes.setdefault(build_id, deque(maxlen=CRASHES_MAX))
        times.append(now_ns)
        if len(times) < CRASHES_MAX or now_ns - times[0] > WITHIN_S * NS_PER_S:
            return
        del self.crashes[build_id]
        if self._avoid(build_id):
            log.warning("kind of processor avoided", build_id=build_id, crashes=CRASHES_MAX, reason=reason)
            self._tell(build_id, reason)
            return
        text = f"its process ended {CRASHES_MAX} times within {WITHIN_S // 60} minutes, the last time: {reason}"
        task = asyncio.create_task(self._put_away(list(self._variants_of(build_id)), text), name="quarantine")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _put_away(self, variants: list[str], reason: str) -> None:
        models = await self._models()
        for variant in variants:
            log.warning("variant quarantined", variant_id=variant, reason=reason)
            await models.set_variant_state(variant, VariantState.QUARANTINED, reason)
