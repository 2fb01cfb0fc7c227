"""Registry of processor kinds. Only the composition root imports this."""

from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

from appliance.runtime.processors.cpu.session import OnnxProcessor

PROCESSORS: Mapping[str, Callable[..., Any]] = {"cpu": OnnxProcessor}


def check_runtime() -> None:
    """Exactly one ONNX Runtime distribution may be installed: two overwrite each other's files in silence.

    Raises: RuntimeError naming them.
    """
    clashing = [name for name in _RUNTIMES if _is_installed(name)]
    if len(clashing) > 1:
        raise RuntimeError(f"{' and '.join(clashing)} are both installed and overwrite each other; keep one of them")


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


_RUNTIMES = ("onnxruntime", "onnxruntime-directml", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-silicon")
