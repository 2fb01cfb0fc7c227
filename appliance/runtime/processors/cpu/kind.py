"""The kind `cpu`."""

from typing import Any

from appliance.runtime.processors.kind import Kind
from appliance.runtime.processors.sessions import Sessions


def _processor(**options: Any) -> Any:
    from appliance.runtime.processors.cpu.session import OnnxProcessor

    return OnnxProcessor(**options)


def _sessions(workers: int, threads_per_run: int) -> Sessions:
    from appliance.runtime.processors.cpu.session import OnnxSessions

    return OnnxSessions(threads_per_run)


CPU = Kind(processor=_processor, sessions=_sessions, pins=True)
