"""The time that a profile goes by."""

from dataclasses import dataclass

import pytest

from appliance.runtime.processors.measuring.stopwatch import Stopwatch, cpu_s
from tests.fakes.hand_clock import HandClock


@dataclass
class Machine:
    """A clock and a processor that the test moves."""

    computed_s: float = 30.0

    def __post_init__(self) -> None:
        self.clock = HandClock()

    def watch(self) -> Stopwatch:
        return Stopwatch(self.clock.now_ns, lambda: self.computed_s)


@pytest.mark.parametrize(
    ("elapsed_s", "computed_s", "ms"),
    [(0.2, 0.0, 0.0), (0.3, 0.05, 50.0), (0.05, 0.05, 50.0), (0.1, 0.2, 100.0)],
    ids=["another process has the processor", "half of the time", "all of the time", "several threads"],
)
def test_stopwatch_does_not_count_time_without_the_processor(elapsed_s: float, computed_s: float, ms: float) -> None:
    machine = Machine()
    watch = machine.watch()
    machine.clock.pass_s(elapsed_s)
    machine.computed_s += computed_s
    assert watch.elapsed_ms() == pytest.approx(1000 * elapsed_s)
    assert watch.cpu_ms() == pytest.approx(1000 * computed_s)
    assert watch.ms() == pytest.approx(ms)


def test_stopwatch_time_is_never_zero() -> None:
    """Callers divide by it."""
    assert Machine().watch().elapsed_ms() > 0


def test_stopwatch_counts_the_processor_time_of_this_process() -> None:
    watch, began_s = Stopwatch(), cpu_s()
    while cpu_s() == began_s:
        pass
    assert watch.cpu_ms() > 0
    assert watch.ms() <= watch.elapsed_ms()
