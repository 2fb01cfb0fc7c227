"""The kind `tensorrt`: NVIDIA GPUs by ONNX Runtime's TensorRT provider. Not run on such hardware yet."""

from typing import TYPE_CHECKING

from appliance.runtime.processors.providers.gpu_kind import gpu_kind

if TYPE_CHECKING:
    from appliance.runtime.processors.providers.engines import TensorRtSessions

KIND = "tensorrt"


def _sessions(workers: int, threads_per_run: int) -> "TensorRtSessions":
    from appliance.runtime.processors.providers.engines import TensorRtSessions

    return TensorRtSessions()


TENSORRT = gpu_kind(KIND, _sessions)
