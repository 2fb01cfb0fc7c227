"""The kind `cuda`: NVIDIA GPUs by ONNX Runtime's CUDA provider. Not run on such hardware yet."""

from typing import TYPE_CHECKING, Any

from appliance.runtime.processors.kind import Kind
from appliance.runtime.processors.providers import gpu

if TYPE_CHECKING:
    from appliance.runtime.processors.providers.sessions import ProviderSessions

KIND = "cuda"
PROVIDER = "CUDAExecutionProvider"
OPTIONS = {
    "device_id": "0",
    "arena_extend_strategy": "kSameAsRequested",  # else it takes twice of what it needs, and keeps it
    "cudnn_conv_algo_search": "HEURISTIC",  # an exhaustive search takes seconds at the first run of each shape
    "do_copy_in_default_stream": "1",
}


def _sessions(workers: int, threads_per_run: int) -> "ProviderSessions":
    from appliance.runtime.processors.providers.sessions import ProviderSessions

    return ProviderSessions(PROVIDER, OPTIONS)


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
