"""Trees of sensor files as machines have them, below a root of the test's own."""

from collections.abc import Mapping
from pathlib import Path


def tree(root: Path, files: Mapping[str, str]) -> Path:
    """Write the files, by path below `root`/sys; returns the root."""
    for name, text in files.items():
        path = root / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


LAPTOP = {
    "class/thermal/thermal_zone0/type": "x86_pkg_temp\n",
    "class/thermal/thermal_zone0/temp": "54000\n",
    "class/thermal/thermal_zone0/trip_point_0_type": "passive\n",
    "class/thermal/thermal_zone0/trip_point_0_temp": "95000\n",
    "class/thermal/thermal_zone0/trip_point_1_type": "critical\n",
    "class/thermal/thermal_zone0/trip_point_1_temp": "105000\n",
    "class/thermal/cooling_device0/type": "Processor\n",
    "class/thermal/cooling_device0/cur_state": "0\n",
    "class/thermal/cooling_device1/type": "intel_powerclamp\n",
    "class/thermal/cooling_device1/cur_state": "-1\n",
    "class/thermal/cooling_device2/type": "TCC Offset\n",
    "class/thermal/cooling_device2/cur_state": "5\n",
    "class/hwmon/hwmon0/name": "coretemp\n",
    "class/hwmon/hwmon0/temp1_input": "52000\n",
    "class/hwmon/hwmon0/temp1_label": "Package id 0\n",
    "class/hwmon/hwmon0/temp1_crit": "100000\n",
    "class/hwmon/hwmon1/name": "nvme\n",
    "class/hwmon/hwmon1/temp1_input": "38850\n",
    "class/hwmon/hwmon2/name": "nvme\n",
    "class/hwmon/hwmon2/temp1_input": "41850\n",
    "class/hwmon/hwmon3/name": "thinkpad\n",
    "class/hwmon/hwmon3/fan1_input": "0\n",
    "devices/system/cpu/cpufreq/policy0/scaling_cur_freq": "2400000\n",
    "devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq": "4700000\n",
    "devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "12\n",
    "class/powercap/intel-rapl:0/name": "package-0\n",
    "class/powercap/intel-rapl:0/energy_uj": "262143000000\n",
    "class/powercap/intel-rapl:0/max_energy_range_uj": "262143328850\n",
}
JETSON = {
    "class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "class/thermal/thermal_zone0/temp": "51593\n",
    "class/thermal/thermal_zone1/type": "gpu-thermal\n",
    "class/thermal/thermal_zone1/temp": "-256000\n",
    "class/thermal/thermal_zone2/type": "cv0-thermal\n",
    "class/thermal/thermal_zone2/temp": "49000\n",
    "class/thermal/cooling_device0/type": "pwm-fan\n",
    "class/thermal/cooling_device0/cur_state": "3\n",
    "class/thermal/cooling_device1/type": "gpu-throttle-alert\n",
    "class/thermal/cooling_device1/cur_state": "1\n",
    "class/thermal/cooling_device2/type": "cpufreq-cpu0\n",
    "class/thermal/cooling_device2/cur_state": "0\n",
    "class/hwmon/hwmon4/name": "ina3221\n",
    "class/hwmon/hwmon4/in1_input": "19872\n",
    "class/hwmon/hwmon4/in1_label": "VDD_GPU_SOC\n",
    "class/hwmon/hwmon4/curr1_input": "256\n",
    "class/hwmon/hwmon4/curr2_input": "999\n",
    "class/devfreq/17000000.gpu/cur_freq": "306000000\n",
    "class/devfreq/17000000.gpu/max_freq": "1300500000\n",
    "class/devfreq/17000000.gpu/device/load": "470\n",
}
