"""What files of the driver tell of a GPU."""

from pathlib import Path

from appliance.runtime.processors.providers.gpu import card, device_memory, is_unified, memory_domain


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_card_fingerprint_has_driver_and_model(tmp_path: Path) -> None:
    """The card's memory is its own, of unknown size without NVML."""
    write(tmp_path, "proc/driver/nvidia/version", "NVRM version: NVIDIA  580.95\nGCC version: gcc 12\n")
    write(tmp_path, "proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA L4\nIRQ: 47\n")
    assert card(tmp_path) == "NVRM version: NVIDIA 580.95|Model: NVIDIA L4"
    assert memory_domain(tmp_path) == "gpu"
    memory = device_memory(1 << 30, tmp_path)
    assert memory is not None
    assert memory.budget_bytes == 1 << 30


def test_card_fingerprint_has_the_versions_of_system_compilers(tmp_path: Path) -> None:
    """No Python package says the version of compilers that come with the system; the names of their files do."""
    write(tmp_path, "usr/lib/aarch64-linux-gnu/libnvinfer.so.10.3.0", "")
    write(tmp_path, "usr/lib/aarch64-linux-gnu/libcudnn.so.9.3.0", "")
    write(tmp_path, "usr/lib/aarch64-linux-gnu/libnvinfer.so.10", "")
    assert card(tmp_path) == "libcudnn.so.9.3.0|libnvinfer.so.10.3.0"


def test_jetson_computes_in_the_memory_of_the_machine(tmp_path: Path) -> None:
    name = "sys/firmware/devicetree/base/compatible"
    write(tmp_path, name, "nvidia,p3737-0000+p3701-0005\0nvidia,tegra234\0")
    assert is_unified(tmp_path)
    assert (memory_domain(tmp_path), device_memory(None, tmp_path)) == ("host", None)
    assert "tegra234" in card(tmp_path)


def test_machine_without_a_gpu_has_no_card_fingerprint(tmp_path: Path) -> None:
    assert card(tmp_path) == ""
    memory = device_memory(None, tmp_path)
    assert memory is not None
    assert memory.budget_bytes is None
