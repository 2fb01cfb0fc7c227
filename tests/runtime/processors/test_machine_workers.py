"""How many workers processors have on a machine that is limited."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from appliance.clock import SystemClock
from appliance.machine import Machine, sorts_within, workers_of
from appliance.resources.cores import cores_within
from appliance.settings import ProcessorSettings, Settings
from tests.resources.kernel_files import version_1, version_2

One = ProcessorSettings


@pytest.mark.parametrize(
    ("quota", "version", "workers"),
    [("max", 2, 2), ("150000", 2, 1), ("20000", 2, 1), ("-1", 1, 2), ("150000", 1, 1)],
)
def test_workers_within_a_cpu_quota_are_the_quotas_whole_cores(
    tmp_path: Path, quota: str, version: int, workers: int
) -> None:
    """On two cores."""
    if version == 1:
        held = {"cpu.cfs_quota_us": f"{quota}\n", "cpu.cfs_period_us": "100000\n"}
        root = version_1(tmp_path, {"cpu,cpuacct": "/"}, {"cpu,cpuacct": held})
    else:
        root = version_2(tmp_path, "/", {"": {"cpu.max": f"{quota} 100000\n"}})
    machine = Machine(Settings(state_dir=tmp_path), SystemClock(), cores_within({0, 1}, root))
    assert [one.workers for one in machine.groups] == [workers]
    machine.processor.close()


@pytest.mark.parametrize(
    ("wanted", "count", "workers"),
    [
        ([One()], 4, [4]),
        ([One(threads_per_run=2)], 3, [1]),
        ([One(threads_per_run=4)], 2, [1]),
        ([One(workers=6)], 2, [6]),
        ([One(), One(kind="openvino")], 3, [3, 3]),
        ([One(workers=4), One(kind="openvino"), One(kind="cuda")], 2, [4, 4, 2]),
        ([One(workers=4), One(kind="openvino", workers=1)], 2, [4, 1]),
        ([One(cores=(0, 1, 2)), One(cores=(3, 4, 5))], 4, [3, 1]),
        ([One(cores=(0, 1)), One(cores=(2, 3))], 8, [2, 2]),
        ([One(cores=(0, 1)), One(cores=(2, 3))], 1, [1, 1]),
        ([One(cores=(0, 1)), One(cores=(2, 3)), One(kind="openvino")], 3, [2, 1, 3]),
        ([One(cores=(0, 1)), One(kind="xnnpack", cores=(0, 1))], 8, [2, 2]),
    ],
)
def test_workers_of_several_processors_share_the_cpu_quota(
    wanted: Sequence[ProcessorSettings], count: int, workers: list[int]
) -> None:
    """First those of processors with cores of their own, in their order; a number that is set stays."""
    assert workers_of(wanted, count) == workers


@pytest.mark.parametrize(("count", "sorts"), [(8, 2), (5, 2), (4, 1), (1, 1)])
def test_sorts_of_cores_within_a_cpu_quota_are_the_fastest(count: int, sorts: int) -> None:
    found = [(4, 5, 6, 7), (0, 1, 2, 3)]
    assert sorts_within(count, found) == found[:sorts]
