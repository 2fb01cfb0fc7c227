"""The cores that the box may have, on trees as kernels show them."""

from pathlib import Path

import pytest

from appliance.resources.cores import Cores, cores_within
from tests.resources.kernel_files import tree, version_1, version_2

EIGHT = frozenset(range(8))


def test_cores_without_limits_are_all_of_the_machine(tmp_path: Path) -> None:
    assert cores_within(EIGHT, tree(tmp_path, {})) == Cores(EIGHT, 8)
    assert cores_within({0, 1}, tmp_path / "nothing") == Cores(frozenset({0, 1}), 2)


def test_cores_of_process_with_affinity_are_the_affinity_set(tmp_path: Path) -> None:
    assert cores_within({2, 3}, tree(tmp_path, {})) == Cores(frozenset({2, 3}), 2, "affinity")


@pytest.mark.parametrize(
    ("quota", "count", "bound"),
    [
        ("max 100000", 8, ""),
        ("150000 100000", 1, "cpu.max: 1.5"),
        ("50000 100000", 1, "cpu.max: 0.5"),
        ("200000 50000", 4, "cpu.max: 4"),
        ("1600000 100000", 8, ""),
    ],
)
def test_cores_within_quota_are_rounded_down_to_at_least_one(
    tmp_path: Path, quota: str, count: int, bound: str
) -> None:
    root = version_2(tmp_path, "/", {"": {"cpu.max": f"{quota}\n"}})
    assert cores_within(EIGHT, root) == Cores(EIGHT, count, bound)


def test_cores_in_nested_cgroups_are_within_tightest_quota(tmp_path: Path) -> None:
    """Quotas of cgroups beside and below say nothing."""
    quotas = {"": "max 100000", "a": "300000 100000", "a/b": "600000 100000", "a/b/c": "1000 100000", "d": "1 100000"}
    root = version_2(tmp_path, "/a/b", {folder: {"cpu.max": f"{quota}\n"} for folder, quota in quotas.items()})
    assert cores_within(EIGHT, root) == Cores(EIGHT, 3, "cpu.max: 3")


@pytest.mark.parametrize(("quota", "count", "bound"), [("-1", 8, ""), ("250000", 2, "cpu.cfs_quota_us: 2.5")])
def test_cores_of_cgroup_v1_are_within_quota(tmp_path: Path, quota: str, count: int, bound: str) -> None:
    """Its hierarchy has another controller, too, and a limit of version 2 beside it is none."""
    held = {"cpu.cfs_quota_us": f"{quota}\n", "cpu.cfs_period_us": "100000\n"}
    groups = {"cpu,cpuacct/docker/f0": held, "unified/system.slice/box.service": {"cpu.max": "1000 100000\n"}}
    root = version_1(tmp_path, {"cpu,cpuacct": "/docker/f0", "cpuset": "/docker/f0"}, groups)
    assert cores_within(EIGHT, root) == Cores(EIGHT, count, bound)


@pytest.mark.parametrize("file", ["cpuset.effective_cpus", "cpuset.cpus"])
def test_cores_of_cgroup_v1_are_within_cpuset(tmp_path: Path, file: str) -> None:
    """Older kernels have no file with the effective ones."""
    groups = {"cpuset": {file: "0-7\n"}, "cpuset/a": {file: "1,4-5\n"}}
    root = version_1(tmp_path, {"cpuset": "/a"}, groups)
    assert cores_within({1, 4, 5}, root) == Cores(frozenset({1, 4, 5}), 3, file)


def test_cores_of_cgroup_v2_are_within_the_nearest_cpuset(tmp_path: Path) -> None:
    """Also where the kernel's affinity is not kept to it."""
    root = version_2(tmp_path, "/a/b", {"a": {"cpuset.cpus.effective": "0-1\n"}, "a/b": {"cpu.max": "max 100000\n"}})
    assert cores_within(EIGHT, root) == Cores(frozenset({0, 1}), 2, "cpuset.cpus.effective")


def test_cores_within_quota_and_cpuset_are_bounded_by_the_tighter(tmp_path: Path) -> None:
    held = {"cpu.max": "150000 100000\n", "cpuset.cpus.effective": "0-2\n"}
    root = version_2(tmp_path, "/", {"": held})
    assert cores_within({0, 1, 2}, root) == Cores(frozenset({0, 1, 2}), 1, "cpu.max: 1.5")
    root = version_2(tmp_path, "/", {"": held | {"cpu.max": "500000 100000\n"}})
    assert cores_within({0, 1, 2}, root) == Cores(frozenset({0, 1, 2}), 3, "cpuset.cpus.effective")
