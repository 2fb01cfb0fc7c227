"""Reads all sensors every two seconds, in a thread of its own: some answer in milliseconds, and one that hangs must
hold nobody up.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from appliance.clock import NS_PER_S, Clock
from appliance.domain.sensors import Sensed
from appliance.log import get as get_log
from appliance.runtime.sensors.source import Source

log = get_log("sensors")
LOOK_ROUND_S = 60.0
"""Between two looks at which sensors there are."""
HELD_S = 10.0
"""So long a device counts as throttled after it last was: at its limit it is, and is not, from one look to the next."""
STALE_INTERVALS = 5
"""A reading that is older than so many intervals is none any more: a sensor hangs."""


class Sensors:
    """`now` may be asked by any thread."""

    def __init__(self, clock: Clock, sources: Sequence[Source], interval_s: float) -> None:
        """`interval_s` 0: nothing is ever read."""
        self._clock = clock
        self._sources = tuple(sources)
        self.interval_s = interval_s
        self._sensed = Sensed()
        self._held: dict[str, tuple[str, int]] = {}
        """Device → why it was throttled, and when that was seen last."""
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self.on_throttled: Callable[[Mapping[str, str]], None] = _nothing
        """Told by the thread, whenever other devices are throttled than before, which are: and why."""

    def start(self) -> None:
        if self.interval_s > 0 and self._sources:
            self._thread = threading.Thread(target=self._work, name="sensors", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Does not wait: a sensor may hang."""
        self._end.set()

    def now(self) -> Sensed:
        """What was read last; with unknown values, and nobody throttled, where that is too long ago."""
        sensed = self._sensed
        age_ns = self._clock.now_ns() - sensed.at_ns
        if not sensed.at_ns or age_ns <= STALE_INTERVALS * self.interval_s * NS_PER_S:
            return sensed
        return Sensed(sensed.at_ns, tuple(replace(one, value=None) for one in sensed.readings))

    def look_round(self) -> None:
        """Have every source find out what is there."""
        for source in self._sources:
            try:
                source.look_round()
            except Exception as error:  # files and drivers of all kinds
                log.warning("sensors cannot be looked for", source=type(source).__name__, reason=repr(error))

    def read(self) -> None:
        """One round of all sources; one that fails is left out."""
        readings, throttled = [], dict[str, str]()
        for source in self._sources:
            try:
                readings += source.read()
                throttled = {**source.throttled(), **throttled}
            except Exception as error:
                log.warning("sensors cannot be read", source=type(source).__name__, reason=repr(error))
        now_ns = self._clock.now_ns()
        self._held |= {device: (why, now_ns) for device, why in throttled.items()}
        held_ns = int(HELD_S * NS_PER_S)
        self._held = {one: said for one, said in self._held.items() if now_ns - said[1] < held_ns}
        still = {device: why for device, (why, _at_ns) in self._held.items()}
        before, self._sensed = self._sensed, Sensed(now_ns, tuple(readings), still)
        if before.throttled.keys() != still.keys():
            self.on_throttled(still)

    def _work(self) -> None:
        look_ns = 0
        while not self._end.is_set():
            if self._clock.now_ns() >= look_ns:
                self.look_round()
                look_ns = self._clock.now_ns() + int(LOOK_ROUND_S * NS_PER_S)
            self.read()
            self._end.wait(self.interval_s)
        for source in self._sources:
            source.close()


def _nothing(_: Mapping[str, str]) -> None:
    """Nobody listens."""
