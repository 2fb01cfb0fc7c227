"""Keeps the budget below what the machine can spare: when others take memory the box shrinks before the system runs
out, and grows back after (EM-05). So it does when the kernel says that processes stand for want of memory, whatever
seems to be available.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice

from appliance.clock import NS_PER_S, Clock
from appliance.domain.events import EventSink
from appliance.policies.forecast.memory import SAMPLES_MAX, MemoryForecaster, MemorySample
from appliance.policies.limits.budget import BudgetInput, budget
from appliance.runtime.decisions.limits import budget_decision
from appliance.runtime.memory.manager import MemoryManager
from appliance.runtime.ports import DecisionSink

_SAMPLES = 512
"""Kept, the latest: enough to choose and train a forecaster on."""
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
        self._spare: deque[int] = deque(maxlen=calm_samples)

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
        self._spare.append(ours if prediction is None else prediction.low_bytes)
        self._memory.runs.spare_bytes = max(0, ours - self._reserve - self._memory.budget_bytes)
        is_calm = len(self._spare) == self._spare.maxlen and self._clock.now_ns() >= self._calm_at_ns
        self._decide(tuple(self._spare), may_grow=is_calm)

    def stalled(self) -> None:
        """Processes stand for want of memory, the kernel says: give an eighth of what is used back."""
        if not self._is_scarce():
            return
        self._calm_at_ns = self._clock.now_ns() + _CALM_NS
        used = self._memory.used_bytes
        self._decide((self._available_bytes() + used,), may_grow=False, stalled_used=used)

    def _decide(self, spare: tuple[int, ...], *, may_grow: bool, stalled_used: int | None = None) -> None:
        """Set the budget that follows."""
        before = self._memory.budget_bytes
        problem = BudgetInput(before, self._budget, self._reserve, spare, may_grow, stalled_used)
        plan = budget(problem)
        if plan.budget == before:
            return
        self._events.emit("budget changed", budget_bytes=plan.budget, before_bytes=before, most_bytes=self._budget)
        self._decisions.record("budget", budget_decision(problem, plan))
        self._memory.resize(plan.budget)
