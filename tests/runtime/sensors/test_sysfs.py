"""Sensors that the kernel shows as files, on trees as machines have them."""

from pathlib import Path

import pytest

from appliance.domain.sensors import Quantity, Reading, Sensed
from appliance.runtime.sensors.sysfs import SysfsSensors, device_of
from tests.fakes.hand_clock import HandClock
from tests.runtime.sensors.sensor_files import JETSON, LAPTOP, tree


def sensors(root: Path, clock: HandClock | None = None) -> SysfsSensors:
    made = SysfsSensors(clock or HandClock(), root)
    made.look_round()
    return made


def by_name(readings: list[Reading]) -> dict[str, Reading]:
    return {f"{one.source} {one.name}": one for one in readings}


def test_sysfs_readings_of_a_laptop_have_units_devices_and_limits(tmp_path: Path) -> None:
    """Two disks have names apart."""
    found = by_name(sensors(tree(tmp_path, LAPTOP)).read())
    assert found["thermal x86_pkg_temp"] == Reading("thermal", "x86_pkg_temp", Quantity.CELSIUS, 54.0, "cpu", 105.0)
    assert found["hwmon coretemp Package id 0"] == Reading(
        "hwmon", "coretemp Package id 0", Quantity.CELSIUS, 52.0, "cpu", 100.0
    )
    assert (found["hwmon nvme temp1"].value, found["hwmon nvme temp1 (2)"].value) == (38.85, 41.85)
    assert found["hwmon nvme temp1"].device == ""
    assert found["hwmon thinkpad fan1"] == Reading("hwmon", "thinkpad fan1", Quantity.RPM, 0.0)
    assert found["cpufreq cpu0"] == Reading("cpufreq", "cpu0", Quantity.MEGAHERTZ, 2400.0, "cpu", 4700.0)


def test_sysfs_readings_of_a_jetson_have_watts_and_throttling(tmp_path: Path) -> None:
    """Watts are volts times amperes; a sensor that is switched off (-256 °C) is unknown; a current without a voltage is
    no reading.
    """
    made = sensors(tree(tmp_path, JETSON))
    found = by_name(made.read())
    rail = found["hwmon ina3221 VDD_GPU_SOC"]
    assert (rail.quantity, rail.device) == (Quantity.WATTS, "gpu")
    assert rail.value == pytest.approx(5.087, abs=1e-3)
    assert found["thermal gpu-thermal"].value is None
    assert (found["thermal cv0-thermal"].value, found["thermal cv0-thermal"].device) == (49.0, "dla")
    assert found["devfreq 17000000.gpu"] == Reading("devfreq", "17000000.gpu", Quantity.MEGAHERTZ, 306.0, "gpu", 1300.5)
    assert found["devfreq 17000000.gpu load"].value == 47.0
    assert sum(one.quantity is Quantity.WATTS for one in found.values()) == 1
    assert made.throttled() == {"gpu": "the kernel holds it back (gpu-throttle-alert)"}


def test_watts_of_an_energy_counter_are_the_growth_over_time(tmp_path: Path) -> None:
    """Unknown at first; also across the end of the counter's range."""
    clock = HandClock()
    made = sensors(tree(tmp_path, LAPTOP), clock)
    assert by_name(made.read())["rapl package-0"].value is None
    clock.pass_s(2)
    (tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj").write_text("29671150")
    assert by_name(made.read())["rapl package-0"].value == pytest.approx(15.0)
    made.look_round()  # it goes on from where it was
    clock.pass_s(1)
    (tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj").write_text("39671150")
    assert by_name(made.read())["rapl package-0"].value == pytest.approx(10.0)


def test_processor_is_throttled_while_the_throttle_counter_grows(tmp_path: Path) -> None:
    """Events before the box started are no throttling now, and neither are fans, settings and idle clamps."""
    made = sensors(tree(tmp_path, LAPTOP))
    made.read()
    assert made.throttled() == {}
    (tmp_path / "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count").write_text("13")
    made.read()
    assert made.throttled() == {"cpu": "it is too hot (core throttled)"}
    made.read()
    assert made.throttled() == {}


def test_throttled_cores_are_told_by_core_or_as_the_processor(tmp_path: Path) -> None:
    """By their counters, or because the kernel lowers the clock that they share; all cores together are the
    processor.
    """
    files = {
        **{f"devices/system/cpu/cpu{core}/thermal_throttle/core_throttle_count": "0" for core in range(4)},
        "devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": "0",
        "devices/system/cpu/cpu2/cpufreq/related_cpus": "2 3\n",
        "class/thermal/cooling_device0/type": "cpufreq-cpu2\n",
        "class/thermal/cooling_device0/cur_state": "0\n",
    }
    made = sensors(tree(tmp_path, files))
    made.read()
    counter = "devices/system/cpu/cpu{}/thermal_throttle/core_throttle_count"
    tree(tmp_path, {counter.format(1): "5"})
    made.read()
    assert made.throttled() == {"cpu1": "it is too hot (core throttled)"}
    tree(tmp_path, {"class/thermal/cooling_device0/cur_state": "1"})
    made.read()
    assert made.throttled() == dict.fromkeys(("cpu2", "cpu3"), "the kernel holds it back (cpufreq-cpu2)")
    tree(tmp_path, {"class/thermal/cooling_device0/cur_state": "0", **{counter.format(at): "9" for at in range(4)}})
    made.read()
    assert made.throttled() == {"cpu": "it is too hot (core throttled)"}
    tree(tmp_path, {"devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": "1"})
    made.read()
    assert made.throttled() == {"cpu": "it is too hot (package throttled)"}


def test_throttling_of_cores_counts_for_processors_on_these_cores() -> None:
    """A processor on some cores is throttled with one of these, one that may run anywhere with any, a GPU with none."""
    sensed = Sensed(1, throttled={"cpu3": "hot", "gpu1": "warm"})
    assert [sensed.why_throttled("cpu", cores) for cores in ((0, 1), (2, 3), ())] == ["", "hot", "hot"]
    assert [sensed.why_throttled(device) for device in ("gpu", "dla", "gpu1")] == ["", "", "warm"]
    assert Sensed(1, throttled={"cpu": "all"}).why_throttled("cpu", (7,)) == "all"


def test_machine_without_sensors_has_no_readings(tmp_path: Path) -> None:
    """And nothing is throttled."""
    made = sensors(tmp_path)
    assert (made.read(), made.throttled()) == ([], {})


@pytest.mark.parametrize("text", ["", "garbage", "0", "nan", "inf", "999999999999", "-256000"])
def test_absent_or_absurd_reading_is_unknown(tmp_path: Path, text: str) -> None:
    """Never 0, and no reason to leave the others out."""
    made = sensors(tree(tmp_path, {**LAPTOP, "class/thermal/thermal_zone0/temp": text}))
    found = by_name(made.read())
    assert found["thermal x86_pkg_temp"].value is None
    assert found["cpufreq cpu0"].value == 2400.0


def test_reading_of_a_sensor_file_that_goes_is_unknown(tmp_path: Path) -> None:
    """As when a driver is unloaded between two looks."""
    made = sensors(tree(tmp_path, LAPTOP))
    (tmp_path / "sys/class/thermal/thermal_zone0/temp").unlink()
    assert by_name(made.read())["thermal x86_pkg_temp"].value is None
    made.look_round()
    assert "thermal x86_pkg_temp" in by_name(made.read())


@pytest.mark.parametrize(
    ("name", "device"),
    [("k10temp Tctl", "cpu"), ("GPU-therm", "gpu"), ("amdgpu edge", "gpu"), ("acpitz", ""), ("DLA0", "dla")],
)
def test_device_of_a_sensor_is_known_by_name(name: str, device: str) -> None:
    assert device_of(name) == device


def test_sensor_readings_of_this_machine_are_numbers_or_unknown() -> None:
    """Whatever sensors it has."""
    made = sensors(Path("/"))
    for one in made.read():
        assert one.value is None or one.value == one.value
