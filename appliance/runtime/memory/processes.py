"""Processes that builds need beside them, until they are there: what each takes by itself is promised before it begins.

One that two loads need is promised once, and for as long as either of them, or whoever starts it, wants it.
"""

from collections.abc import Collection, Hashable

from appliance.runtime.memory.ledger import Ledger
from appliance.runtime.memory.room import Process


class ComingProcesses:
    """Event-loop thread only."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._promised: dict[Hashable, tuple[int, set[Hashable]]] = {}
        """Name → its bytes, and who wants it."""

    def missing_bytes(self, process: Process | None) -> int:
        """What is yet to be promised for a process that has to begin; None: none has."""
        return 0 if process is None or process.name in self._promised else process.bytes

    def promise(self, process: Process, wanted_by: Hashable) -> None:
        """Its bytes are nobody else's from now on."""
        self._promised.setdefault(process.name, (process.bytes, set()))[1].add(wanted_by)
        self._tell()

    def unwanted(self, wanted_by: Hashable) -> None:
        """Somebody wants none any more: who has gone, or has it."""
        for name, (_bytes, users) in list(self._promised.items()):
            users.discard(wanted_by)
            if not users:
                del self._promised[name]
        self._tell()

    def came(self, names: Collection[Hashable]) -> None:
        """These are there, and what they take is counted as overhead."""
        for name in names:
            self._promised.pop(name, None)
        self._tell()

    def _tell(self) -> None:
        self._ledger.coming_bytes = sum(count_bytes for count_bytes, _users in self._promised.values())
