"""Keeps the budget below what the machine can spare: when others take memory the box shrinks before the system runs
out, and grows back after (EM-05). So it does when the kernel says that processes stand for want of memory, whatever
seems to be available.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice

from appliance.clock import NS_PER_S, Clock
from appliance.domain.events import EventSink
from appliance.domain.units import BYTES_PER_MB
from appliance.policies.forecast.memory import SAMPLES_MAX, MemoryForecaster, MemorySample
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.ports import DecisionSink

_SAMPLES = 512
"""Kept, the latest: enough to choose and train a forecaster on."""
_STEP_BYTES = 16 * 2**20
"""The budget moves in such steps, so that the breath of other programs moves it seldom."""
_GIVEN_BACK = 1 / 8
"""Of what is used, at each word of processes that stand."""
_KEPT = 1 / 4
"""Of the largest budget: that word alone never makes it smaller."""
_CALM_NS = 30 * NS_PER_S
"""From that word to the budget's next growth."""


class MemoryPressure:
    """One sample a period.

    What is sampled is what the box could have: what the machine has available, and what the box's builds occupy
    themselves.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        memory: MemoryManager,
        forecaster: MemoryForecaster,
        available_bytes: Callable[[], int],
        events: EventSink,
        decisions: DecisionSink,
        budget_bytes: int,
        reserve_bytes: int,
        is_scarce: Callable[[], bool] = lambda: False,
        period_s: float = 1.0,
        horizon_s: float = 5.0,
        calm_samples: int = 5,
    ) -> None:
        """`budget_bytes` is the most it grows to; `reserve_bytes` stay free for everybody else.

        It grows after `calm_samples` that all allow it. `is_scarce`: whether processes that stand for want of memory
        are to be believed.
        """
        self._clock = clock
        self._memory = memory
        self.forecaster = forecaster
        """May be replaced at any time."""
        self._available_bytes = available_bytes
        self._events = events
        self._decisions = decisions
        self._budget = budget_bytes
        self._reserve = reserve_bytes
        self._is_scarce = is_scarce
        self._calm_at_ns = 0
        """Before that it does not grow."""
        self._period_ns = int(period_s * NS_PER_S)
        self.horizon_ns = int(horizon_s * NS_PER_S)
        self._samples: deque[MemorySample] = deque(maxlen=_SAMPLES)
        self._allowed: deque[int] = deque(maxlen=calm_samples)

    def samples(self, count: int = _SAMPLES) -> tuple[MemorySample, ...]:
        """The latest ones, oldest first."""
        return tuple(islice(self._samples, max(0, len(self._samples) - count), None))

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.step()
            await self._clock.sleep_until_ns(self._clock.now_ns() + self._period_ns)

    def step(self) -> None:
        """Take a sample and set the budget that follows from it."""
        ours = self._available_bytes() + self._memory.used_bytes
        self._samples.append(MemorySample(self._clock.now_ns(), ours))
        prediction = self.forecaster.predict(self.samples(SAMPLES_MAX), self.horizon_ns)
        low = ours if prediction is None else prediction.low_bytes
        spare = max(0, low - self._reserve)
        self._allowed.append(min(self._budget, spare - spare % _STEP_BYTES))
        self._memory.runs.spare_bytes = max(0, ours - self._reserve - self._memory.budget_bytes)
        now = self._memory.budget_bytes
        is_calm = len(self._allowed) == self._allowed.maxlen and self._clock.now_ns() >= self._calm_at_ns
        if self._allowed[-1] < now:
            self._resize(self._allowed[-1], low, "other programs will leave less")
        elif is_calm and min(self._allowed) > now:
            self._resize(min(self._allowed), low, "other programs have left more for a while")

    def stalled(self) -> None:
        """Processes stand for want of memory, the kernel says: give an eighth of what is used back."""
        if not self._is_scarce():
            return
        self._calm_at_ns = self._clock.now_ns() + _CALM_NS
        used = self._memory.used_bytes
        kept = max(0, used - max(_STEP_BYTES, int(used * _GIVEN_BACK)))
        budget = max(kept - kept % _STEP_BYTES, int(self._budget * _KEPT))
        if budget < self._memory.budget_bytes:
            self._resize(budget, self._available_bytes() + used, "processes stand for want of memory")

    def _resize(self, budget_bytes: int, low_bytes: int, why: str) -> None:
        """`low_bytes`: the least that the box could have, as forecast."""
        before = self._memory.budget_bytes
        self._events.emit("budget changed", budget_bytes=budget_bytes, before_bytes=before, most_bytes=self._budget)
        self._decisions.record("budget", self._decision(budget_bytes, before, low_bytes, why))
        self._memory.resize(budget_bytes)

    def _decision(self, budget: int, before: int, low: int, why: str) -> dict[str, object]:
        """Of kind `budget`; it concerns no application, so it is the operator's."""
        return {
            "application": None,
            "concerned": (),
            "problem": {
                "kind": "budget",
                "plan": None,
                "why": "the budget follows what the machine can spare: no policy was asked",
                "before_mb": before / BYTES_PER_MB,
                "most_mb": self._budget / BYTES_PER_MB,
                "reserve_mb": self._reserve / BYTES_PER_MB,
                "forecast_mb": low / BYTES_PER_MB,
            },
            "answer": {
                "outcome": "shrunk" if budget < before else "grown",
                "budget_mb": budget / BYTES_PER_MB,
                "actions": [],
                "reason": f"{why}: {low / BYTES_PER_MB:.0f} MB, of which {self._reserve / BYTES_PER_MB:.0f} stay free",
            },
        }
