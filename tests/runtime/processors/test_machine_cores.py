"""Sorts of cores, as the system describes them."""

from pathlib import Path

import pytest

from appliance.machine import by_sorts_of_cores
from appliance.runtime.processors.cores import mean_speed, sorts, speeds
from appliance.settings import ProcessorSettings


def machine(root: Path, **files: list[int]) -> Path:
    """A tree of sysfs; `files` with a number for each core."""
    for name, numbers in files.items():
        for core, number in enumerate(numbers):
            path = root / f"cpu{core}" / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{number}\n")
    return root


def test_cores_are_sorted_by_capacity(tmp_path: Path) -> None:
    speed = speeds(range(4), machine(tmp_path, cpu_capacity=[446, 446, 1024, 1024]))
    assert speed == pytest.approx({0: 0.4355, 1: 0.4355, 2: 1.0, 3: 1.0}, abs=1e-3)
    assert sorts(speed) == [(2, 3), (0, 1)]
    assert mean_speed((0, 2), speed) == pytest.approx(0.7177, abs=1e-3)


def test_cores_of_unknown_capacity_are_sorted_by_clock(tmp_path: Path) -> None:
    """Cores of a sort differ by a little."""
    clocks = [5_100_000, 5_000_000, 5_000_000, 3_800_000, 3_800_000]
    assert sorts(speeds(range(5), machine(tmp_path, cpufreq__cpuinfo_max_freq=clocks))) == [(0, 1, 2), (3, 4)]
    assert sorts(speeds((0, 1), tmp_path)) == [(0, 1)]


@pytest.mark.parametrize("files", [{}, {"cpu_capacity": [1024, 1024, 1024]}, {"cpufreq__cpuinfo_max_freq": [1, 2]}])
def test_cores_of_equal_or_unknown_speed_are_one_sort(tmp_path: Path, files: dict[str, list[int]]) -> None:
    """Also where some cores say nothing."""
    assert sorts(speeds(range(3), machine(tmp_path, **files))) == [(0, 1, 2)]


def test_auto_cores_propose_a_processor_for_each_sort() -> None:
    """Fastest first; whatever the operator has said of cores or workers stays."""
    other = ProcessorSettings(kind="openvino")
    found = [(2, 3), (0, 1)]
    proposed = by_sorts_of_cores((ProcessorSettings(threads_per_run=2), other), found)
    assert [(one.name, one.cores, one.threads_per_run) for one in proposed] == [
        ("cpu-big", (2, 3), 2),
        ("cpu-little", (0, 1), 2),
        (None, "auto", 1),
    ]
    three = by_sorts_of_cores((ProcessorSettings(name="c"),), [(3,), (1, 2), (0,)])
    assert [one.name for one in three] == ["c-big", "c-middle", "c-little"]
    for as_set in (
        ProcessorSettings(cores=()),
        ProcessorSettings(cores=(0, 2)),
        ProcessorSettings(workers=3),
    ):
        assert by_sorts_of_cores((as_set,), found) == (as_set,)
    assert by_sorts_of_cores((ProcessorSettings(),), [(0, 1)]) == (ProcessorSettings(),)
