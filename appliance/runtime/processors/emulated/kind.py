"""The kind `emulated`: for measurements of the box on a processor that the machine does not have. Never a default: a
box has it where its settings name it, as its only one, and every answer says so.
"""

from typing import Any

from appliance.runtime.processors.kind import Kind
from appliance.runtime.processors.sessions import InferenceSessions


def _processor(**options: Any) -> Any:
    from appliance.runtime.processors.emulated.session import EmulatedProcessor

    return EmulatedProcessor(**options)


def _sessions(workers: int, threads_per_run: int) -> InferenceSessions:
    from appliance.runtime.processors.emulated.session import EmulatedSessions

    return EmulatedSessions()


EMULATED = Kind(processor=_processor, sessions=_sessions)
