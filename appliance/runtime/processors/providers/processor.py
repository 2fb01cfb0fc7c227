"""The port of kinds on a GPU: which device, which memory, and what a prepared form depends on."""

import hashlib
from collections.abc import Callable
from typing import Any

from appliance.domain.hardware import ProcessorDescription
from appliance.runtime.processors.blocking import BlockingProcessor
from appliance.runtime.processors.cpu.session import machine
from appliance.runtime.processors.providers import gpu
from appliance.runtime.processors.sessions import Stoppable
from appliance.runtime.processors.versions import version_of

_WRITTEN = 2
"""Counts the ways in which forms were written, so that those of an earlier one are made anew."""
_LIBRARIES = (
    *("onnxruntime", "onnxruntime-gpu"),
    *("tensorrt", "tensorrt-cu12", "tensorrt-cu13"),
    *("nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
)


def on_gpu(kind: str, sessions: Callable[[], Stoppable]) -> Callable[..., BlockingProcessor]:
    """What makes the processor of a kind."""

    def make(
        name: str, workers: int, threads_per_run: int, loads_parallel_max: int, memory_bytes: int | None
    ) -> BlockingProcessor:
        print_ = fingerprint(kind, gpu.card())
        description = ProcessorDescription(name, kind, workers, threads_per_run, gpu.memory_domain(), print_)
        return BlockingProcessor(description, sessions, loads_parallel_max, gpu.device_memory(memory_bytes))

    return make


def fingerprint(kind: str, device: str, *others: Any) -> str:
    """Libraries, device and what else a prepared form depends on."""
    versions = "|".join(f"{name} {version_of(name)}" for name in _LIBRARIES)
    text = "|".join(map(str, (_WRITTEN, kind, versions, device, machine(), *others)))
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
