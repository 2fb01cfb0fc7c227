"""The round of all sensors: in a thread of its own, never in anybody's way."""

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from appliance.clock import SystemClock
from appliance.domain.sensors import Quantity, Reading
from appliance.runtime.sensors.sensors import HELD_S, STALE_INTERVALS, Sensors
from appliance.runtime.sensors.sysfs import SysfsSensors
from tests.fakes.hand_clock import HandClock
from tests.runtime.sensors.sensor_files import JETSON, LAPTOP, tree

WAIT_S = 120


class Hanging:
    """A sensor that answers once and then hangs until it is let go."""

    def __init__(self) -> None:
        self.hangs, self.go = threading.Event(), threading.Event()
        self.is_closed = threading.Event()
        self._reads = 0

    def look_round(self) -> None:
        """It is there."""

    def read(self) -> list[Reading]:
        self._reads += 1
        if self._reads > 1:
            self.hangs.set()
            assert self.go.wait(WAIT_S)
        return [Reading("hwmon", "fan1", Quantity.RPM, 900.0)]

    def throttled(self) -> Mapping[str, str]:
        return {"cpu": "hot"}

    def close(self) -> None:
        self.is_closed.set()


class Broken(Hanging):
    """A driver's bug."""

    def read(self) -> list[Reading]:
        raise OverflowError("bug")


def test_sensor_that_hangs_becomes_unknown_and_blocks_nothing() -> None:
    """What it said once is unknown after a while, and the box ends all the same."""
    clock, hanging = HandClock(), Hanging()
    made = Sensors(clock, [hanging], interval_s=0.01)
    made.start()
    assert hanging.hangs.wait(WAIT_S)
    assert [one.value for one in made.now().readings] == [900.0]
    assert made.now().throttled == {"cpu": "hot"}
    clock.pass_s(STALE_INTERVALS * 0.01 + 0.01)
    assert [one.value for one in made.now().readings] == [None]
    assert made.now().throttled == {}
    made.close()
    hanging.go.set()
    assert hanging.is_closed.wait(WAIT_S)


def test_sensor_that_fails_leaves_the_other_readings(tmp_path: Path) -> None:
    made = Sensors(HandClock(), [Broken(), SysfsSensors(HandClock(), tree(tmp_path, LAPTOP))], 2.0)
    made.look_round()
    made.read()
    assert len(made.now().readings) == 7
    assert made.now().throttled == {}


def test_throttling_is_told_when_beginning_and_when_over(tmp_path: Path) -> None:
    """Once when it begins, once when it has been over for a while: at the limit it comes and goes."""
    clock = HandClock()
    told: list[dict[str, str]] = []
    made = Sensors(clock, [SysfsSensors(HandClock(), tree(tmp_path, JETSON))], 2.0)
    made.on_throttled = lambda throttled: told.append(dict(throttled))
    made.look_round()
    made.read()
    state = tmp_path / "sys/class/thermal/cooling_device1/cur_state"
    for says, pause_s in (("0", 1), ("1", 1), ("0", HELD_S), ("0", 1)):
        state.write_text(says)
        made.read()
        clock.pass_s(pause_s)
    assert told == [{"gpu": "the kernel holds it back (gpu-throttle-alert)"}, {}]


@pytest.mark.parametrize("interval_s", [0.0, 2.0])
def test_sensors_off_or_without_sources_start_no_thread(interval_s: float) -> None:
    """And have no readings."""
    made = Sensors(SystemClock(), [] if interval_s else [Hanging()], interval_s)
    before = threading.active_count()
    made.start()
    assert threading.active_count() == before
    assert made.now().readings == ()
    made.close()
