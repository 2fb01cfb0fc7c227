"""Processor time that was spent for somebody, by kind of processor: what requests ran, whether or not their callers
were still there at the end.

The processors' busy time is that of all who spend, together. Event-loop thread only.
"""

from collections.abc import Mapping


class Spending:
    """Implements `RunMeter`. What is spent for a part is spent for the whole, too."""

    __slots__ = ("_by_kind", "_whole")

    def __init__(self, whole: "Spending | None" = None) -> None:
        """`whole`: what this is a part of."""
        self._whole = whole
        self._by_kind: dict[str, int] = {}

    def ran(self, kind: str, took_ns: int, at_once: int = 1) -> None:
        self._by_kind[kind] = self._by_kind.get(kind, 0) + took_ns
        if self._whole is not None:
            self._whole.ran(kind, took_ns)

    @property
    def by_kind(self) -> Mapping[str, int]:
        """Kind of processor → nanoseconds."""
        return self._by_kind

    @property
    def total_ns(self) -> int:
        """On all kinds."""
        return sum(self._by_kind.values())

    @property
    def totals(self) -> tuple[int, ...]:
        """Return the nanoseconds on all kinds."""
        return (self.total_ns,)


class SpendingByTenant(Spending):
    """Processor time of all tenants together, and of each tenant."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        super().__init__()
        self._of: dict[str, Spending] = {}

    def of(self, tenant: str) -> Spending:
        """What is spent for a tenant is spent here, too."""
        found = self._of.get(tenant)
        if found is None:
            found = self._of[tenant] = Spending(self)
        return found

    @property
    def by_tenant(self) -> Mapping[str, Spending]:
        """Return the processor time of each tenant since the start."""
        return self._of

    def forget(self, tenant: str) -> None:
        """Drop the time of a deleted tenant, whose name may be given again."""
        self._of.pop(tenant, None)
