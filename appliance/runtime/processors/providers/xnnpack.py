"""The kind `xnnpack`: the CPU by ONNX Runtime's XNNPACK provider, where the runtime was built with it: the wheels for
x86 are not. Not run yet.
"""

from typing import TYPE_CHECKING, Any

from appliance.runtime.processors.kind import Kind

if TYPE_CHECKING:
    from appliance.runtime.processors.providers.sessions import ProviderSessions

KIND = "xnnpack"
PROVIDER = "XnnpackExecutionProvider"


def _sessions(workers: int, threads_per_run: int) -> "ProviderSessions":
    from appliance.runtime.processors.providers.sessions import ProviderSessions

    return ProviderSessions(PROVIDER, {"intra_op_num_threads": str(threads_per_run)})


def _processor(name: str, workers: int, threads_per_run: int, loads_parallel_max: int) -> Any:
    from appliance.domain.hardware import ProcessorDescription
    from appliance.runtime.processors.blocking import BlockingProcessor
    from appliance.runtime.processors.providers.processor import fingerprint

    print_ = fingerprint(KIND, "", threads_per_run)
    description = ProcessorDescription(name, KIND, workers, threads_per_run, "host", print_)
    return BlockingProcessor(description, lambda: _sessions(workers, threads_per_run), loads_parallel_max)


XNNPACK = Kind(processor=_processor, sessions=_sessions)
