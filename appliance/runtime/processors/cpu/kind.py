"""The kind `cpu`."""

from typing import Any

from appliance.runtime.processors.kind import InGuard, Kind
from appliance.runtime.processors.sessions import GuardSessions, InferenceSessions


def _processor(**options: Any) -> Any:
    from appliance.runtime.processors.cpu.session import OnnxProcessor

    return OnnxProcessor(**options)


def _sessions(workers: int, threads_per_run: int) -> InferenceSessions:
    from appliance.runtime.processors.cpu.session import OnnxSessions

    return OnnxSessions(threads_per_run)


def _get_ready() -> None:
    from appliance.runtime.processors.cpu import session  # noqa: F401 - with it ONNX Runtime


def _guard_sessions(workers: int, threads_per_run: int, files: Any) -> GuardSessions:
    from appliance.runtime.processors.cpu.session import OnnxSessions

    return OnnxSessions(threads_per_run, files)


CPU = Kind(
    processor=_processor,
    sessions=_sessions,
    pins=True,
    guard=InGuard(base_bytes=20_000_000, server_bytes=30_000_000, get_ready=_get_ready, sessions=_guard_sessions),
)
