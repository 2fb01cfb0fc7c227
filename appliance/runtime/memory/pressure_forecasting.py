"""Gives the box the memory forecaster that would have been right most often: chosen on its own samples, anew every
night (EM-05).
"""

from collections.abc import Callable, Mapping

from appliance.clock import NS_PER_S, Clock
from appliance.domain.events import EventSink
from appliance.policies.forecast import MEMORY_FORECASTERS
from appliance.policies.forecast.kinds import Kind, written
from appliance.policies.forecast.memory import MemoryFit, MemoryForecaster, MemorySample, unrest_bytes
from appliance.policies.forecast.memory_choice import choose_memory
from appliance.runtime.memory.pressure import MemoryPressure
from appliance.runtime.ports import Background

FIRST_SAMPLES = 256
"""Samples after which a forecaster is chosen for the first time, without waiting for the night."""


class MemoryForecasting:
    """Training costs a fixed number of epochs over a bounded number of samples: 0.2 s of one core a night, off the
    loop.

    It learns from the stretch since the last choice in which memory moved most: when the night's samples are taken
    nothing moves.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        pressure: MemoryPressure,
        background: Background,
        events: EventSink,
        saved: Callable[[str], None],
        look_every_s: float = 60.0,
        seed: int = 0,
        candidates: Mapping[str, Kind[MemoryFit, MemoryForecaster]] = MEMORY_FORECASTERS,
    ) -> None:
        """`saved` is told each forecaster that was chosen, as text."""
        self._clock = clock
        self._pressure = pressure
        self._background = background
        self._events = events
        self._saved = saved
        self._look_ns = int(look_every_s * NS_PER_S)
        self._seed = seed
        self._candidates = candidates
        self._has_chosen = False
        self._liveliest: tuple[MemorySample, ...] = ()
        self._unrest_bytes = -1

    async def run(self) -> None:
        """Until cancelled: keep the liveliest samples, and choose for the first time once there are enough."""
        while True:
            await self._clock.sleep_until_ns(self._clock.now_ns() + self._look_ns)
            self._look()
            if not self._has_chosen and len(self._liveliest) >= FIRST_SAMPLES:
                await self.choose()

    async def choose(self) -> None:
        """For the night: anew, from the liveliest samples since the last time."""
        self._look()
        samples, horizon_ns = self._liveliest, self._pressure.horizon_ns
        if len(samples) < FIRST_SAMPLES:
            return
        self._has_chosen = True
        self._liveliest, self._unrest_bytes = (), -1
        choice = await self._background(lambda: choose_memory(samples, horizon_ns, self._seed, self._candidates))
        self._pressure.forecaster = choice.forecaster
        errors_mb = {name: round(error / 1e6, 3) for name, error in choice.errors_bytes.items()}
        self._events.emit("memory forecaster chosen", forecaster=choice.forecaster.name, error_mb=errors_mb)
        self._saved(written(choice.forecaster))

    def _look(self) -> None:
        """While the first samples come the stretch grows, and its unrest with it."""
        samples = self._pressure.samples()
        found_bytes = unrest_bytes(samples)
        if found_bytes >= self._unrest_bytes:
            self._liveliest, self._unrest_bytes = samples, found_bytes
