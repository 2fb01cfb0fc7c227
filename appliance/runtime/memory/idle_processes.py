"""Processes beside builds that end where memory is needed more."""

from collections.abc import Collection
from typing import Protocol


class IdleProcesses(Protocol):
    """Processes of one sort, each of which may be idle: needed by nothing that is awake or on its way there."""

    def idle_bytes(self, wanted: Collection[str]) -> int:
        """What the idle ones take that none of the builds `wanted` needs."""
        ...

    def end_idle(self, wanted: Collection[str]) -> bool:
        """End one of these; whether there was one. Its bytes count no more when this returns."""
        ...


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
