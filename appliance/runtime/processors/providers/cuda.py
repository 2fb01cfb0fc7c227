"""The kind `cuda`: NVIDIA GPUs by ONNX Runtime's CUDA provider. Not run on such hardware yet."""

from typing import TYPE_CHECKING

from appliance.runtime.processors.providers.gpu_kind import gpu_kind

if TYPE_CHECKING:
    from appliance.runtime.processors.providers.cuda_session import CudaSessions

KIND = "cuda"


def _sessions(workers: int, threads_per_run: int) -> "CudaSessions":
    from appliance.runtime.processors.providers.cuda_session import CudaSessions

    return CudaSessions()


CUDA = gpu_kind(KIND, _sessions)
