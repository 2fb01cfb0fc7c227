"""Sensors as a running box shows them, and processors that they say are throttled."""

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from appliance import machine
from appliance.clock import Clock
from appliance.runtime.sensors import sensors as sensors_module
from appliance.runtime.sensors.sensors import Sensors
from appliance.runtime.sensors.sysfs import SysfsSensors
from appliance.settings import SensorSettings
from tests.api.stand import Stand, made_key, shown_when, stand_on
from tests.fakes import waiting
from tests.runtime.sensors.sensor_files import LAPTOP, tree

COOLING = "class/thermal/cooling_device0/cur_state"
pytestmark = pytest.mark.anyio


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the box finds its sensors."""
    root = tree(tmp_path / "root", LAPTOP)

    def sensors(settings: SensorSettings, clock: Clock) -> Sensors:
        return Sensors(clock, [SysfsSensors(clock, root)], settings.interval_s)

    monkeypatch.setattr(machine, "sensors_of", sensors)
    monkeypatch.setattr(sensors_module, "HELD_S", 0.05)
    return root


async def until(stand: Stand, *states: str) -> Any:
    """The first processor, once they are in these states."""

    def are_so(shown: Any) -> bool:
        return [one["state"] for one in shown] == list(states)

    return (await shown_when(stand.client(), "/v1/processors", are_so))[0]


async def test_sensor_readings_and_throttling_are_shown_to_admins_only(root: Path, tmp_path: Path) -> None:
    """In `/metrics` as well; a throttled processor is shown with the reason, told as an event, and goes on serving."""
    state = tmp_path / "state"
    async with stand_on(state, sensors={"interval_s": 0.05}) as stand:
        admin = stand.client()
        await until(stand, "serving")
        tree(root, {COOLING: "2"})
        found = await until(stand, "throttled")
        assert found["reason"] == "the kernel holds it back (Processor)"
        assert not stand.appliance.running().processor_statuses()[0].description.cores
        shown = (await admin.get("/v1/sensors")).json()
        assert shown["throttled"] == [{"device": "cpu", "reason": "the kernel holds it back (Processor)"}]
        assert shown["at"]
        readings = {one["name"]: one for one in shown["readings"]}
        assert readings["x86_pkg_temp"] == {
            "source": "thermal",
            "name": "x86_pkg_temp",
            "device": "cpu",
            "quantity": "celsius",
            "value": 54.0,
            "limit": 105.0,
        }
        text = (await admin.get("/metrics")).text
        assert 'appliance_sensor_celsius{device="cpu",name="x86_pkg_temp",source="thermal"} 54.0\n' in text
        assert 'appliance_sensor_hertz{device="cpu",name="cpu0",source="cpufreq"} 2.4e+09\n' in text
        assert 'appliance_processor_throttled{processor="cpu"} 1.0\n' in text
        await admin.post("/v1/tenants", json={"name": "harbour"})
        harbour = stand.client(key=await made_key(admin, "harbour"))
        assert (await harbour.get("/v1/sensors")).status_code == 403
        assert "appliance_sensor" not in (await harbour.get("/metrics")).text
        (own,) = (await harbour.get("/v1/processors")).json()
        assert (own["state"], own["reason"]) == ("throttled", None)
        tree(root, {COOLING: "0"})
        await until(stand, "serving")
        telemetry = stand.appliance.running().telemetry
        # What the box does is told a moment after it is done.
        await waiting.until(lambda: telemetry.recent()[-1].event == "processor serving")
        assert telemetry.recent()[-2].event == "processor throttled"


async def test_throttled_core_throttles_only_the_processor_on_that_core(root: Path, tmp_path: Path) -> None:
    """Of two processors on cores of their own; dispatch knows of the throttling."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    counts = {f"devices/system/cpu/cpu{core}/thermal_throttle/core_throttle_count": "1" for core in cores}
    tree(root, counts)
    both = [{"kind": "cpu", "name": name, "cores": [core]} for name, core in zip("ab", cores, strict=True)]
    async with stand_on(tmp_path, sensors={"interval_s": 0.05}, processors=both) as stand:
        await until(stand, "serving", "serving")
        groups, numbers = {one.name: one for one in stand.appliance.running().engine.groups}, itertools.count(2)

        def is_throttled(shown: Any) -> bool:
            """For a moment after each change of the count."""
            tree(root, {sorted(counts)[1]: str(next(numbers))})
            states = [one["state"] for one in shown], [groups[name].is_throttled() for name in "ab"]
            return states == (["serving", "throttled"], [False, True])

        await shown_when(stand.client(), "/v1/processors", is_throttled)
        await until(stand, "serving", "serving")
        events = stand.appliance.running().telemetry.recent()
        assert {one.facts["processor"] for one in events if "throttled" in one.event} == {"b"}


async def test_sensors_switched_off_have_no_readings(root: Path, tmp_path: Path) -> None:
    async with stand_on(tmp_path, sensors={"interval_s": 0}) as stand:
        shown = (await stand.client().get("/v1/sensors")).json()
        assert shown == {"at": None, "interval_s": 0.0, "readings": [], "throttled": []}
