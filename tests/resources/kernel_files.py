"""Trees of /proc and /sys/fs/cgroup as kernels show them, below a root of the test's own."""

from collections.abc import Mapping
from pathlib import Path

MIB, GIB = 2**20, 2**30
NONE_V1 = "9223372036854771712\n"
"""No limit, in version 1."""
MEMINFO = """\
MemTotal:       33554432 kB
MemFree:         8388608 kB
MemAvailable:   25165824 kB
Buffers:          150216 kB
Cached:         10962563 kB
HugePages_Total:       0
"""
V2 = "29 23 0:26 {cgroup} /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_TMPFS = "28 23 0:25 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755\n"
V1 = (
    "3{at} 28 0:3{at} {cgroup} /sys/fs/cgroup/{folder} rw,nosuid,nodev,noexec,relatime shared:1{at}"
    " - cgroup cgroup rw,{folder}\n"
)
OTHERS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
23 27 0:22 / /sys rw,relatime - sysfs sysfs rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard,resv_strict
"""


def tree(root: Path, files: Mapping[str, str]) -> Path:
    """Write the files, by path below `root`, with what every machine has; returns the root."""
    everywhere = {"proc/meminfo": MEMINFO, "sys/devices/system/cpu/online": "0-7\n"}
    for name, text in (everywhere | dict(files)).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def version_2(
    root: Path, path: str, groups: Mapping[str, Mapping[str, str]], *, mounted: str = "/", more: str = ""
) -> Path:
    """A machine with version 2 alone: the process is in `path`, and `groups` has files by the folder of a cgroup below
    the mount; `mounted` stands at the mount.
    """
    files = {f"sys/fs/cgroup/{folder}/{name}": text for folder, held in groups.items() for name, text in held.items()}
    written = {"proc/self/cgroup": f"0::{path}\n", "proc/self/mountinfo": OTHERS + V2.format(cgroup=mounted) + more}
    return tree(root, written | files)


def version_1(
    root: Path, paths: Mapping[str, str], groups: Mapping[str, Mapping[str, str]], *, mounted: str = "/"
) -> Path:
    """A machine with version 1: `paths` has the cgroup of the process by controllers (`cpu,cpuacct`), and `groups`
    files by folder below /sys/fs/cgroup. As systemd has it, the controllers' folder is named after all of them; there
    are hierarchies without controllers beside: systemd's own, and one of version 2.
    """
    own = [f"{12 - at}:{controllers}:{path}\n" for at, (controllers, path) in enumerate(paths.items())]
    mounts = [V1.format(at=at, cgroup=mounted, folder=controllers) for at, controllers in enumerate(paths)]
    systemd = "39 28 0:39 / /sys/fs/cgroup/systemd rw,relatime shared:8 - cgroup cgroup rw,xattr,name=systemd\n"
    unified = "40 28 0:40 / /sys/fs/cgroup/unified rw,relatime shared:7 - cgroup2 cgroup2 rw,nsdelegate\n"
    files = {f"sys/fs/cgroup/{folder}/{name}": text for folder, held in groups.items() for name, text in held.items()}
    written = {
        "proc/self/cgroup": "".join(own) + "1:name=systemd:/system.slice/box.service\n0::/system.slice/box.service\n",
        "proc/self/mountinfo": OTHERS + V1_TMPFS + "".join(mounts) + systemd + unified,
    }
    return tree(root, written | files)


def memory_v2(limit: str, used: int, high: str = "max", /, **stat: int) -> dict[str, str]:
    """Files of a cgroup with the memory controller, in version 2; `stat`: rows of memory.stat that are not 0."""
    names = "anon file kernel shmem file_mapped file_dirty inactive_anon active_anon inactive_file active_file".split()
    rows = dict.fromkeys([*names, "unevictable", "slab_reclaimable", "slab_unreclaimable", "slab"], 0) | stat
    return {
        "memory.max": f"{limit}\n",
        "memory.high": f"{high}\n",
        "memory.current": f"{used}\n",
        "memory.stat": "".join(f"{name} {value}\n" for name, value in rows.items()),
    }


def memory_v1(limit: int | str, used: int, *, hierarchical: int | str = NONE_V1, **stat: int) -> dict[str, str]:
    """The same in version 1; `stat` counts what is in cgroups below, too."""
    names = "cache rss shmem mapped_file dirty inactive_anon active_anon inactive_file active_file unevictable".split()
    rows = dict.fromkeys(names, 0) | {"hierarchical_memory_limit": int(hierarchical)}
    rows |= {f"total_{name}": stat.get(name, 0) for name in names}
    return {
        "memory.limit_in_bytes": f"{str(limit).strip()}\n",
        "memory.usage_in_bytes": f"{used}\n",
        "memory.use_hierarchy": "1\n",
        "memory.stat": "".join(f"{name} {value}\n" for name, value in rows.items()),
    }


def stalled(milliseconds: int, avg10: float = 0.0) -> str:
    """What a file of PSI says."""
    some = f"some avg10={avg10:.2f} avg60=0.00 avg300=0.00 total={milliseconds * 1000}\n"
    return some + "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
