"""The NVIDIA GPU of this machine as files of the driver tell of it: without a library, for a box that starts."""

from pathlib import Path
from typing import Any

from appliance.runtime.processors.device_memory import DeviceMemory
from appliance.runtime.sensors.nvml import nvml

NODES = (
    "/dev/nvidia0",
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvmap",
    "/dev/dri",
    "/dev/nvgpu",
    "/dev/nvhost-as-gpu",
    "/dev/nvhost-ctrl",
    "/dev/nvhost-ctrl-gpu",
    "/dev/nvhost-ctxsw-gpu",
    "/dev/nvhost-dbg-gpu",
    "/dev/nvhost-gpu",
    "/dev/nvhost-nvdla0",
    "/dev/nvhost-nvdla1",
    "/dev/nvhost-prof-gpu",
    "/dev/nvhost-tsg-gpu",
)
"""What a process that computes there reads and writes, of discrete cards and of Jetsons: those of them that exist."""
READS = (
    "/proc/driver/nvidia",
    "/proc/devices",
    "/proc/modules",
    "/sys/bus/pci",
    "/sys/devices",
    "/sys/module",
    "/opt/nvidia",
)
"""What its libraries read besides."""
_LIBRARIES = ("usr/lib/*-linux-gnu", "usr/local/cuda/lib64")
"""Where a system has libraries that no Python package counts the versions of; the names of their files do."""
_COMPILERS = ("libnvinfer.so.*.*", "libcudnn.so.*.*")
_TEGRA = ("etc/nv_tegra_release", "sys/firmware/devicetree/base/compatible")


def card(root: Path = Path("/")) -> str:
    """Driver, model and the system's compilers, as far as they are told; what was compiled with one for one card and
    driver is for no other: TensorRT would compile it anew while it is loaded.
    """
    texts = [_text(root / "proc/driver/nvidia/version").partition("\n")[0]]
    for file in sorted(root.glob("proc/driver/nvidia/gpus/*/information")):
        texts += [line for line in _text(file).splitlines() if line.startswith("Model")]
    texts += [_text(root / name) for name in _TEGRA]
    texts += sorted({file.name for at in _LIBRARIES for name in _COMPILERS for file in root.glob(f"{at}/{name}")})
    return "|".join(" ".join(text.split()) for text in texts if text)


def is_unified(root: Path = Path("/")) -> bool:
    """Whether the GPU computes in the machine's own memory, as a Jetson's does."""
    return "tegra" in " ".join(_text(root / name) for name in _TEGRA).lower()


def memory_domain(root: Path = Path("/")) -> str:
    """`host` where it is the machine's memory."""
    return "host" if is_unified(root) else "gpu"


def device_memory(budget_bytes: int | None, root: Path = Path("/")) -> DeviceMemory | None:
    """Of the first card; None where it has none of its own."""
    if is_unified(root):
        return None
    asked: list[Any] = []

    def info(name: str) -> int | None:
        try:
            if not asked:
                asked.append(nvml(root))
            library = asked[0]
            return int(getattr(library.nvmlDeviceGetMemoryInfo(library.nvmlDeviceGetHandleByIndex(0)), name))
        except Exception:  # no driver, no package
            return None

    return DeviceMemory(lambda: info("total"), lambda: info("used"), budget_bytes)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""
