"""The memory that the box may have, on trees as kernels show them."""

import resource
from pathlib import Path

import pytest

from appliance.resources.cgroups import own_cgroups
from appliance.resources.memory import Memory, MemoryLimits
from tests.resources.kernel_files import GIB, MIB, NONE_V1, OTHERS, V2, memory_v1, memory_v2, tree, version_1, version_2

MACHINE = Memory(32 * GIB, 24 * GIB, 8 * GIB)


def memory(root: Path) -> Memory:
    return MemoryLimits(root).now()


def test_memory_without_cgroups_is_that_of_the_machine(tmp_path: Path) -> None:
    assert memory(tree(tmp_path, {})) == MACHINE


def test_memory_in_cgroup_without_limit_is_that_of_the_machine(tmp_path: Path) -> None:
    """Of version 2 the root has no files of memory at all."""
    unlimited = memory_v2("max", 9 * GIB, inactive_file=GIB)
    assert memory(version_2(tmp_path, "/a", {"a": unlimited, "": {"cgroup.procs": "1\n"}})) == MACHINE


@pytest.mark.parametrize(
    ("limit", "high", "bound"),
    [(512 * MIB, "max", "memory.max"), (512 * MIB, str(GIB), "memory.max"), ("max", str(512 * MIB), "memory.high")],
)
def test_memory_in_cgroup_v2_container_is_within_the_lower_limit(
    tmp_path: Path, limit: int | str, high: str, bound: str
) -> None:
    """The container's own root is at /sys/fs/cgroup. Of 300 MiB used 120 are page cache; 20 of these are mapped, and so
    in use; 5 are caches of the kernel.
    """
    stat = {"inactive_file": 80 * MIB, "active_file": 40 * MIB, "file_mapped": 20 * MIB, "slab_reclaimable": 5 * MIB}
    root = version_2(tmp_path, "/", {"": memory_v2(str(limit), 300 * MIB, high, **stat)})
    assert memory(root) == Memory(512 * MIB, (512 - 195) * MIB, (512 - 300) * MIB, bound)


def test_memory_counts_shared_memory_as_used(tmp_path: Path) -> None:
    """Shared memory is `file`, but cannot be dropped; and there is never more page cache than there is memory."""
    stat = {"file": 200 * MIB, "shmem": 190 * MIB, "file_mapped": 150 * MIB, "inactive_file": 10 * MIB}
    root = version_2(tmp_path, "/", {"": memory_v2(str(512 * MIB), 300 * MIB, **stat)})
    assert memory(root).available_bytes == 212 * MIB


@pytest.mark.parametrize("mounted", ["/", "/system.slice"])
def test_memory_in_nested_cgroups_is_within_the_tightest_limit(tmp_path: Path, mounted: str) -> None:
    """Total and what is left may be bounded by different ones: above others use the memory, too."""
    below = "system.slice/" if mounted == "/" else ""
    root = version_2(
        tmp_path,
        "/system.slice/box.slice/box.service",
        {
            below.rstrip("/"): memory_v2(str(4 * GIB), 3 * GIB + 900 * MIB),
            f"{below}box.slice": memory_v2(str(GIB), 300 * MIB),
            f"{below}box.slice/box.service": memory_v2(str(2 * GIB), 200 * MIB),
            f"{below}other.service": memory_v2(str(64 * MIB), 60 * MIB),
            f"{below}box.slice/box.service/guard": memory_v2(str(32 * MIB), 30 * MIB),
        },
        mounted=mounted,
    )
    assert memory(root) == Memory(GIB, 124 * MIB, 124 * MIB, "memory.max")


def test_memory_over_the_limit_leaves_nothing(tmp_path: Path) -> None:
    """`memory.high` may be passed; and a limit of nothing is a limit."""
    root = version_2(tmp_path, "/", {"": memory_v2("max", 80 * MIB, str(64 * MIB))})
    assert memory(root) == Memory(64 * MIB, 0, 0, "memory.high")
    root = version_2(tmp_path, "/", {"": memory_v2("0", 80 * MIB)})
    assert memory(root) == Memory(0, 0, 0, "memory.max")


def test_memory_limit_above_machine_memory_bounds_nothing(tmp_path: Path) -> None:
    root = version_2(tmp_path, "/", {"": memory_v2(str(64 * GIB), GIB)})
    assert memory(root) == MACHINE


def test_memory_in_cgroup_v1_container_is_within_limit(tmp_path: Path) -> None:
    """Without a namespace the path is the host's, and the mount shows the container's branch of the hierarchy."""
    held = memory_v1(512 * MIB, 300 * MIB, inactive_file=80 * MIB, active_file=40 * MIB, mapped_file=20 * MIB)
    root = version_1(tmp_path, {"memory": "/docker/f0"}, {"memory": held}, mounted="/docker/f0")
    assert memory(root) == Memory(512 * MIB, 312 * MIB, 212 * MIB, "memory.limit_in_bytes")


def test_memory_limit_of_cgroup_v1_above_the_container_is_seen(tmp_path: Path) -> None:
    held = memory_v1(NONE_V1, 100 * MIB, hierarchical=256 * MIB)
    root = version_1(tmp_path, {"memory": "/pods/f0"}, {"memory": held}, mounted="/pods/f0")
    assert memory(root) == Memory(256 * MIB, 156 * MIB, 156 * MIB, "memory.limit_in_bytes")


@pytest.mark.parametrize(("counts_below", "total"), [("1", GIB), ("0", 2 * GIB)])
def test_memory_limit_of_cgroup_v1_holds_below_with_use_hierarchy(
    tmp_path: Path, counts_below: str, total: int
) -> None:
    above = memory_v1(GIB, 100 * MIB) | {"memory.use_hierarchy": f"{counts_below}\n"}
    groups = {"memory": memory_v1(NONE_V1, GIB), "memory/a": above, "memory/a/b": memory_v1(2 * GIB, 100 * MIB)}
    assert memory(version_1(tmp_path, {"memory": "/a/b"}, groups)).total_bytes == total


def test_memory_on_hybrid_machine_follows_cgroup_v1_with_controller(tmp_path: Path) -> None:
    """Files of the same names in the hierarchy of version 2 beside it are no limits."""
    groups = {"memory/a": memory_v1(GIB, 0), "unified/system.slice/box.service": memory_v2(str(64 * MIB), 0)}
    root = version_1(tmp_path, {"memory": "/a", "cpu,cpuacct": "/"}, groups)
    assert memory(root).total_bytes == GIB
    assert [one.folder.name for one in own_cgroups("memory", root)] == ["a", "memory"]


def test_memory_on_hybrid_machine_follows_cgroup_v2_with_controller(tmp_path: Path) -> None:
    groups = {"unified/system.slice/box.service": memory_v2(str(64 * MIB), 0)}
    root = version_1(tmp_path, {"cpu,cpuacct": "/"}, groups)
    assert memory(root) == Memory(64 * MIB, 64 * MIB, 64 * MIB, "memory.max")


def test_memory_in_container_without_mounted_path_is_within_the_root(tmp_path: Path) -> None:
    """A process that was moved into a container: its path leads out of the namespace."""
    root = version_2(tmp_path, "/../pods/f0", {"": memory_v2(str(512 * MIB), 0)}, mounted="/pods/f1")
    assert memory(root).total_bytes == 512 * MIB


def test_memory_follows_a_limit_that_changes(tmp_path: Path) -> None:
    limits = MemoryLimits(version_2(tmp_path, "/", {"": memory_v2("max", 0)}))
    assert limits.now() == MACHINE
    (tmp_path / "sys/fs/cgroup/memory.max").write_text(f"{GIB}\n")
    assert limits.now().total_bytes == GIB


def test_memory_limit_stays_while_no_file_can_be_opened(tmp_path: Path) -> None:
    """The memory does not become that of the machine, whose limit cannot be read."""
    limits = MemoryLimits(version_2(tmp_path, "/", {"": memory_v2(str(GIB), 0)}))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        seen = limits.now()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert seen == Memory(GIB, GIB, GIB, "memory.max")


def test_memory_follows_the_visible_cgroup_mount(tmp_path: Path) -> None:
    """A later mount at the same place hides the one before; the names of mounts have their blanks escaped."""
    hidden = "29 23 0:26 /gone /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
    elsewhere = V2.format(cgroup="/").replace("/sys/fs/cgroup", r"/mnt/own\040groups")
    files = {
        "proc/self/cgroup": "0::/gone\n",
        "proc/self/mountinfo": OTHERS + hidden + hidden.replace("cgroup2 cgroup2", "tmpfs tmpfs") + elsewhere,
        "mnt/own groups/gone/memory.max": f"{GIB}\n",
        "sys/fs/cgroup/memory.max": f"{MIB}\n",
    }
    assert memory(tree(tmp_path, files)).total_bytes == GIB


@pytest.mark.parametrize(
    ("free", "available", "is_scarce"), [(50, 150, True), (50, 400, False), (120, 150, False), (200, 900, False)]
)
def test_memory_is_scarce_where_little_is_free_and_little_available(free: int, available: int, is_scarce: bool) -> None:
    assert Memory(1000, available, free).is_scarce(100) is is_scarce
