"""Port `Processor` over OpenVINO on the CPU."""

import hashlib
from importlib.metadata import version
from typing import TYPE_CHECKING

from appliance.domain.hardware import ProcessorDescription
from appliance.runtime.processors.blocking import BlockingProcessor
from appliance.runtime.processors.cpu.session import machine

if TYPE_CHECKING:  # it takes 50 MB, so it is imported with the first build
    from appliance.runtime.processors.openvino.session import OpenVinoSessions

KIND = "openvino"
_BF16 = "bf16"
"""In the flags of a processor that computes in it: avx512_bf16, amx_bf16, on Arm bf16."""
_WRITTEN = 1
"""Counts the ways in which forms were written, so that those of an earlier one are made anew."""


class OpenVinoProcessor(BlockingProcessor):
    """What it compiled lies in its heap, so nothing sleeps."""

    def __init__(self, name: str, workers: int, threads_per_run: int, loads_parallel_max: int) -> None:
        def sessions() -> "OpenVinoSessions":
            from appliance.runtime.processors.openvino.session import OpenVinoSessions

            return OpenVinoSessions(workers, threads_per_run)

        print_ = fingerprint(workers, threads_per_run)
        reduced = _BF16 if _BF16 in machine() else ""
        description = ProcessorDescription(name, KIND, workers, threads_per_run, "host", print_, reduced=reduced)
        super().__init__(description, sessions, loads_parallel_max)


def fingerprint(workers: int, threads_per_run: int) -> str:
    """What a prepared form depends on: how it is written, version, processor, streams and threads."""
    text = f"{_WRITTEN}|{version(KIND)}|{machine()}|{workers}|{threads_per_run}"
    return f"{KIND}-{version(KIND)}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
