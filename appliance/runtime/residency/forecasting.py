"""Gives each application the forecaster that would have been right most often: chosen on its own history, anew every
night (EM-04).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from appliance.clock import NS_PER_S, Clock
from appliance.domain.events import EventSink
from appliance.policies.forecast import FORECASTERS
from appliance.policies.forecast.base import Fit, Forecaster
from appliance.policies.forecast.choice import choose
from appliance.policies.forecast.kinds import Kind, written
from appliance.runtime.ports import Background
from appliance.runtime.residency.demand import Expectation, Expectations

_FIRST_ARRIVALS = 64
"""Requests after which a forecaster is chosen for the first time, without waiting for the night."""


class Forecasting:
    """Training costs a fixed number of epochs over a bounded history (about half a second a time), one application
    after the other.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        expectations: Expectations,
        background: Background,
        events: EventSink,
        saved: Callable[[Mapping[str, str]], None],
        look_every_s: float = 60.0,
        seed: int = 0,
        given: Iterable[str] = (),
        candidates: Mapping[str, Kind[Fit, Forecaster]] = FORECASTERS,
    ) -> None:
        """`saved` is told the forecaster of each application, by name, after every change.

        Those in `given` have one from outside and keep it.
        """
        self._clock = clock
        self._expectations = expectations
        self._background = background
        self._events = events
        self._saved = saved
        self._look_ns = int(look_every_s * NS_PER_S)
        self._seed = seed
        self._given = frozenset(given)
        self._candidates = candidates
        self._chosen: set[str] = set(self._given)

    async def run(self) -> None:
        """Until cancelled: choose for applications that have enough history and no choice yet."""
        while True:
            await self._clock.sleep_until_ns(self._clock.now_ns() + self._look_ns)
            for expectation in self._expectations.all():
                if expectation.name not in self._chosen and len(expectation.arrivals_ns) >= _FIRST_ARRIVALS:
                    await self._choose(expectation)

    async def choose_all(self) -> None:
        """For the night: every application anew."""
        for expectation in self._expectations.all():
            if expectation.name not in self._given:
                await self._choose(expectation)

    async def _choose(self, expectation: Expectation) -> None:
        arrivals_ns = tuple(expectation.arrivals_ns)
        choice = await self._background(lambda: choose(arrivals_ns, self._seed, self._candidates))
        self._chosen.add(expectation.name)
        expectation.forecaster = choice.forecaster
        facts: dict[str, Any] = {name: round(error / 1e6, 3) for name, error in choice.errors_ns.items()}
        self._events.emit(
            "forecaster chosen", application=expectation.name, forecaster=choice.forecaster.name, error_ms=facts
        )
        self._saved({e.name: written(e.forecaster) for e in self._expectations.all()})
