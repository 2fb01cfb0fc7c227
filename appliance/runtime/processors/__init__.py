"""Registry of processor kinds. Only the composition root imports this."""

from collections.abc import Callable, Mapping
from importlib.metadata import distributions
from typing import Any

from appliance.runtime.processors.cpu.session import OnnxProcessor

PROCESSORS: Mapping[str, Callable[..., Any]] = {"cpu": OnnxProcessor}


def check_runtime() -> None:
    """Exactly one ONNX Runtime distribution may be installed: two overwrite each other's files in silence.

    Raises: RuntimeError naming them.
    """
    found = sorted({str(d.name).lower() for d in distributions() if str(d.name).lower().startswith("onnxruntime")})
    clashing = [name for name in found if name in _RUNTIMES]
    if len(clashing) > 1:
        raise RuntimeError(f"{' and '.join(clashing)} are both installed and overwrite each other; keep one of them")


_RUNTIMES = {"onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml", "onnxruntime-silicon"}
