"""The kind `dla`. Not run on such hardware yet."""

from typing import TYPE_CHECKING, Any

from appliance.runtime.processors.kind import Kind
from appliance.runtime.processors.providers import gpu

if TYPE_CHECKING:
    from appliance.runtime.processors.dla.session import DlaSessions

KIND = "dla"


def _sessions(workers: int, threads_per_run: int) -> "DlaSessions":
    from appliance.runtime.processors.dla.session import DlaSessions

    return DlaSessions(workers)


def _processor(name: str, workers: int, threads_per_run: int, loads_parallel_max: int) -> Any:
    from appliance.domain.hardware import ProcessorDescription
    from appliance.runtime.processors.blocking import BlockingProcessor
    from appliance.runtime.processors.dla.cores import CORES_MAX
    from appliance.runtime.processors.providers.processor import fingerprint

    workers = min(workers, CORES_MAX)
    print_ = fingerprint(KIND, gpu.card())
    description = ProcessorDescription(name, KIND, workers, threads_per_run, "host", print_)
    return BlockingProcessor(description, lambda: _sessions(workers, threads_per_run), loads_parallel_max)


DLA = Kind(processor=_processor, sessions=_sessions, device="dla", nodes=gpu.NODES, reads=gpu.READS)
