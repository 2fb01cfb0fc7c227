"""What is the same of all kinds on a GPU by ONNX Runtime's providers."""

from collections.abc import Callable
from typing import Any

from appliance.runtime.processors.kind import Kind
from appliance.runtime.processors.providers import gpu


def gpu_kind(name: str, sessions: Callable[[int, int], Any]) -> Kind:
    """The kind of that name. `sessions`: of workers and threads a run."""
    return Kind(
        processor=lambda **options: _processor(name, sessions, **options),
        sessions=sessions,
        distribution="onnxruntime-gpu",
        device="gpu",
        nodes=gpu.NODES,
        reads=gpu.READS,
        has_memory=True,
    )


def _processor(
    kind: str,
    sessions: Callable[[int, int], Any],
    *,
    name: str,
    workers: int,
    threads_per_run: int,
    loads_parallel_max: int,
    memory_bytes: int | None = None,
) -> Any:
    from appliance.runtime.processors.providers.processor import on_gpu

    make = on_gpu(kind, lambda: sessions(workers, threads_per_run))
    return make(name, workers, threads_per_run, loads_parallel_max, memory_bytes)
