"""The kind `openvino`. It sets its threads back to all cores of the process, so it cannot be pinned."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from appliance.runtime.processors.kind import InGuard, Kind
from appliance.runtime.processors.sessions import GuardSessions, InferenceSessions


def _processor(**options: Any) -> Any:
    from appliance.runtime.processors.openvino.processor import OpenVinoProcessor

    return OpenVinoProcessor(**options)


def _sessions(workers: int, threads_per_run: int) -> InferenceSessions:
    from appliance.runtime.processors.openvino.session import OpenVinoSessions

    return OpenVinoSessions(workers, threads_per_run)


def _get_ready() -> None:
    from appliance.runtime.processors.openvino.session import open_libraries

    open_libraries()


def _looked_for() -> Iterable[Path]:
    found = find_spec("openvino")
    folders = [] if found is None else [Path(one) / "libs" for one in found.submodule_search_locations or ()]
    return [file for folder in folders for file in folder.glob("*.so*")]


def _guard_sessions(workers: int, threads_per_run: int, files: Any) -> GuardSessions:
    from appliance.runtime.processors.openvino.session import OpenVinoSessions

    return OpenVinoSessions(workers, threads_per_run)


OPENVINO = Kind(
    processor=_processor,
    sessions=_sessions,
    distribution="openvino",
    compiles_sizes=True,
    guard=InGuard(
        base_bytes=40_000_000,
        server_bytes=45_000_000,
        get_ready=_get_ready,
        sessions=_guard_sessions,
        looked_for=_looked_for,
    ),
)
