"""Processes beside builds that end where memory is needed more."""

from collections.abc import Collection

from appliance.runtime.ports import IdleProcesses, Occupied


class AllIdle:
    """All sorts of processes beside builds; processes of the sort that was added first end first."""

    def __init__(self) -> None:
        self._sorts: list[IdleProcesses] = []

    def add(self, processes: IdleProcesses) -> None:
        """Add a sort of processes, which end after the sorts that were added before."""
        self._sorts.append(processes)

    def idle_bytes(self, wanted: Collection[str]) -> int:
        """Return the idle bytes of all sorts together."""
        return sum(one.idle_bytes(wanted) for one in self._sorts)

    def end_idle(self, wanted: Collection[str]) -> bool:
        """End an idle process of the first sort that has any; return whether a process ended."""
        return any(one.end_idle(wanted) for one in self._sorts)

    def occupied(self, wanted: Collection[str]) -> list[Occupied]:
        """Return the occupied processes of all sorts, the smallest first."""
        found = [occupied for one in self._sorts for occupied in one.occupied(wanted)]
        return sorted(found, key=lambda one: one.bytes)
