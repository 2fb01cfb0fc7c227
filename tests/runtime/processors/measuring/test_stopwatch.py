"""The time that a profile goes by."""

from appliance.clock import pause_s
from appliance.runtime.processors.measuring.stopwatch import Stopwatch, cpu_s


def test_time_without_the_processor_does_not_count() -> None:
    """As when another process has it; what was computed does."""
    watch = Stopwatch()
    pause_s(0.2)
    waited_ms = watch.ms()
    assert watch.elapsed_ms() >= 200
    assert waited_ms < 100

    began_s = cpu_s()
    while cpu_s() - began_s < 0.05:
        pass
    assert 50 <= watch.ms() - waited_ms <= watch.elapsed_ms()
