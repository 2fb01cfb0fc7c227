"""The blocking half of `cuda`."""

from appliance.runtime.processors.providers.sessions import ProviderSessions, preload_cuda

PROVIDER = "CUDAExecutionProvider"
OPTIONS = {
    "device_id": "0",
    "arena_extend_strategy": "kSameAsRequested",  # else it takes twice of what it needs, and keeps it
    "cudnn_conv_algo_search": "HEURISTIC",  # an exhaustive search takes seconds at the first run of each shape
    "do_copy_in_default_stream": "1",
}


class CudaSessions(ProviderSessions):
    """With the libraries that CUDA's provider needs."""

    def __init__(self) -> None:
        super().__init__(PROVIDER, OPTIONS)

    def find_libraries(self) -> None:
        preload_cuda()
