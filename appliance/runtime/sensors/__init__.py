"""Heat, throttling, watts, clocks and fans of the machine: from sysfs, NVML and jtop."""
