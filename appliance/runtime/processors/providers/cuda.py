"""The kind `cuda`: NVIDIA GPUs by ONNX Runtime's CUDA provider. Not run on such hardware yet."""

from typing import TYPE_CHECKING, Any

from appliance.runtime.processors.kind import Kind
from appliance.runtime.processors.providers import gpu

if TYPE_CHECKING:
    from appliance.runtime.processors.providers.cuda_session import CudaSessions

KIND = "cuda"


def _sessions(workers: int, threads_per_run: int) -> "CudaSessions":
    from appliance.runtime.processors.providers.cuda_session import CudaSessions

    return CudaSessions()


def _processor(
    name: str, workers: int, threads_per_run: int, loads_parallel_max: int, memory_bytes: int | None = None
) -> Any:
    from appliance.runtime.processors.providers.processor import on_gpu

    make = on_gpu(KIND, lambda: _sessions(workers, threads_per_run))
    return make(name, workers, threads_per_run, loads_parallel_max, memory_bytes)


CUDA = Kind(
    processor=_processor,
    sessions=_sessions,
    distribution="onnxruntime-gpu",
    device="gpu",
    nodes=gpu.NODES,
    reads=gpu.READS,
    has_memory=True,
)
