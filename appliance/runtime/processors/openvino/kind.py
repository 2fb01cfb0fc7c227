"""The kind `openvino`. It sets its threads back to all cores of the process, so it cannot be pinned."""

from typing import Any

from appliance.runtime.processors.kind import Kind
from appliance.runtime.processors.sessions import Sessions


def _processor(**options: Any) -> Any:
    from appliance.runtime.processors.openvino.processor import OpenVinoProcessor

    return OpenVinoProcessor(**options)


def _sessions(workers: int, threads_per_run: int) -> Sessions:
    from appliance.runtime.processors.openvino.session import OpenVinoSessions

    return OpenVinoSessions(workers, threads_per_run)


OPENVINO = Kind(processor=_processor, sessions=_sessions, distribution="openvino", compiles_sizes=True)
