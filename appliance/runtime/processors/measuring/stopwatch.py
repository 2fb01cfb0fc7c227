"""How long something takes that computes, on a machine that others use, too."""

import resource
from collections.abc import Callable

from appliance.clock import NS_PER_MS, SystemClock


def cpu_s() -> float:
    """Processor time of this process, all its threads and the kernel's work for it."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Stopwatch:
    """Time since it was made, with and without what other processes had of the processor."""

    def __init__(self, now_ns: Callable[[], int] = SystemClock.now_ns, computed_s: Callable[[], float] = cpu_s) -> None:
        """`now_ns` and `computed_s`: the clock, and the processor time so far; others in tests."""
        self._now_ns, self._computed_s = now_ns, computed_s
        self._start_ns, self._start_cpu_s = now_ns(), computed_s()

    def elapsed_ms(self) -> float:
        return max(1, self._now_ns() - self._start_ns) / NS_PER_MS

    def cpu_ms(self) -> float:
        """Processor time of all threads."""
        return 1000 * (self._computed_s() - self._start_cpu_s)

    def ms(self) -> float:
        """At most what has elapsed; several threads count as one where they were not kept waiting."""
        return min(self.elapsed_ms(), self.cpu_ms())
