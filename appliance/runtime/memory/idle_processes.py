"""Processes beside builds that end where memory is needed more."""

from collections.abc import Collection

from appliance.runtime.ports import IdleProcesses, Occupied


class AllIdle:
    """Of all sorts, in the order in which they were named: the first end first."""

    def __init__(self) -> None:
        self._sorts: list[IdleProcesses] = []

    def add(self, processes: IdleProcesses) -> None:
        """One more sort, which ends after the others."""
        self._sorts.append(processes)

    def idle_bytes(self, wanted: Collection[str]) -> int:
        """As of each sort, together."""
        return sum(one.idle_bytes(wanted) for one in self._sorts)

    def end_idle(self, wanted: Collection[str]) -> bool:
        """As of the first sort that has one."""
        return any(one.end_idle(wanted) for one in self._sorts)

    def occupied(self, wanted: Collection[str]) -> list[Occupied]:
        """As of each sort; those first that take least."""
        found = [occupied for one in self._sorts for occupied in one.occupied(wanted)]
        return sorted(found, key=lambda one: one.bytes)
